//! Accounts: the user, container or unit that a slow call counts for. Recordings, their share of the disk and label
//! values are limited per account, so that one user's stalls do not use up the limits of others.

use std::sync::Arc;

use flatwater_host::target::container_of;
use flatwater_recording::printable;

/// A user, a container, a unit, or a control group made by root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(Arc<str>);

impl Default for Account {
    fn default() -> Account {
        Account::machine()
    }
}

impl Account {
    /// The account of events that do not belong to a call: pressure of the machine while no call is slow.
    #[must_use]
    pub fn machine() -> Account {
        Account("the machine".into())
    }

    /// The account of dumps, which the owner of the socket requests.
    #[must_use]
    pub fn dumps() -> Account {
        Account("dumps".into())
    }

    /// The account of a process with this real user, if known. `made_by_root` is the part of the control group's path
    /// that only root can have made (`Hierarchies::made_by_root`): users can create any number of groups below it.
    #[must_use]
    pub fn of(made_by_root: &str, uid: Option<u32>) -> Account {
        let mut parts = made_by_root.split('/').filter(|part| !part.is_empty() && *part != "..");
        let first = parts.clone().next().unwrap_or("/");
        let user = |part: &str| part.strip_prefix("user-")?.strip_suffix(".slice")?.parse::<u32>().ok();
        if let Some(uid) = parts.clone().find_map(user) {
            return Account(format!("user {uid}").into());
        }
        let made_by_a_manager = |part: &&str| part.ends_with(".scope") || container_of(part).is_some();
        let group = parts.find(made_by_a_manager).unwrap_or(first);
        let user = uid.map_or_else(|| "a user".to_owned(), |uid| format!("user {uid}"));
        Account(format!("{user} in {}", printable::line(group)).into())
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
    fn all_groups_of_one_user_are_one_account_and_each_unit_has_its_own() {
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
