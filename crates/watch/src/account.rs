//! Who answers for a call. What the daemon bounds (recordings, their place on the disk, label values) is shared by these, so
//! that one user's stalls cost others nothing.

use std::sync::Arc;

use flatwater_host::target::container_of;

/// A user, a container, a unit, or a group of the root's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(Arc<str>);

impl Default for Account {
    fn default() -> Account {
        Account::machine()
    }
}

impl Account {
    /// Of what is no single call: the pressure of the machine, or a dump.
    #[must_use]
    pub fn machine() -> Account {
        Account("the machine".into())
    }

    /// By the control group that a process is in, and its real user where that is known.
    ///
    /// A user may make as many groups below his own as he likes: only the part of the path that root made counts.
    #[must_use]
    pub fn of(cgroup: &str, uid: Option<u32>) -> Account {
        let mut parts = cgroup.split('/').filter(|part| !part.is_empty());
        let first = parts.clone().next().unwrap_or("/");
        let user = |part: &str| part.strip_prefix("user-")?.strip_suffix(".slice")?.parse::<u32>().ok();
        if let Some(uid) = parts.clone().find_map(user) {
            return Account(format!("user {uid}").into());
        }
        let made_by_a_manager = |part: &&str| part.ends_with(".scope") || container_of(part).is_some();
        let group = parts.find(made_by_a_manager).unwrap_or(first);
        let user = uid.map_or_else(|| "a user".to_owned(), |uid| format!("user {uid}"));
        Account(format!("{user} in {group}").into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Account;

    #[test]
    fn groups_that_a_user_made_are_the_same_account_and_units_are_not() {
        let of = |cgroup: &str| Account::of(cgroup, Some(1000));
        let own = of("/user.slice/user-1000.slice/session-2.scope");
        assert_eq!(own, of("/user.slice/user-1000.slice/user@1000.service/app.slice/x-8.scope/many/more"));
        assert_eq!(own.as_str(), "user 1000");
        assert_eq!(of("/system.slice/cron.service/a"), of("/system.slice/cron.service/b"));
        assert_ne!(of("/system.slice/cron.service"), of("/system.slice/postgresql.service"));
        assert_eq!(of("/jobs/a"), of("/jobs/b"));
        assert_ne!(Account::of("/", Some(1)), Account::of("/", Some(2)));
        let pod = |id: char| {
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{}.scope", id.to_string().repeat(64))
        };
        assert_ne!(of(&pod('a')), of(&pod('b')));
        assert_eq!(of(&(pod('a') + "/x")), of(&pod('a')));
    }
}
