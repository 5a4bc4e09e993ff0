//! Finds the container, pod or systemd unit of a cgroup from the cgroup's path.
//!
//! The managers choose these paths: systemd `system.slice/NAME.service`; Docker `docker-ID.scope` or `docker/ID`;
//! containerd and CRI-O under Kubernetes `kubepods.../cri-containerd-ID.scope`, `crio-ID.scope` or
//! `kubepods/burstable/podUID/ID`; Podman `libpod-ID.scope`.

use std::fmt;

/// A systemd unit or a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// `postgresql.service`.
    Unit(String),
    /// A container: its id (64 hexadecimal digits), and the pod's uid if Kubernetes made it.
    Container { id: String, pod: Option<String> },
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Container::Unit(name) => f.write_str(name),
            Container::Container { id, pod } => {
                write!(f, "container {}", id.get(..12).unwrap_or(id))?;
                pod.as_ref().map_or(Ok(()), |pod| write!(f, " of pod {pod}"))
            }
        }
    }
}

/// The number of digits of a full container id.
const ID_DIGITS: usize = 64;

/// The container or unit of a cgroup, from the path within its hierarchy; the innermost one.
#[must_use]
pub fn container_of(path: &str) -> Option<Container> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if let Some(id) = parts.iter().rev().find_map(|part| container_id(part)) {
        return Some(Container::Container { id, pod: parts.iter().rev().find_map(|part| pod_uid(part)) });
    }
    let unit = parts.iter().rev().find(|part| part.ends_with(".service"))?;
    Some(Container::Unit((*unit).to_owned()))
}

/// The container id in `docker-ID.scope`, `cri-containerd-ID.scope` or `ID`.
pub(super) fn container_id(part: &str) -> Option<String> {
    let bare = part.strip_suffix(".scope").unwrap_or(part);
    let id = bare.rsplit('-').next()?;
    let whole = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    whole.then(|| id.to_ascii_lowercase())
}

/// The pod's uid in `kubepods-burstable-podUID.slice` (systemd; `-` in the uid is written as `_`) or `podUID`
/// (cgroupfs).
fn pod_uid(part: &str) -> Option<String> {
    let bare = part.strip_suffix(".slice").unwrap_or(part);
    let uid = match bare.starts_with("kubepods") {
        true => bare.rsplit_once("-pod")?.1,
        false => bare.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-");
    (uid.len() == 36 && uid.bytes().filter(|byte| *byte == b'-').count() == 4).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::{Container, container_of};

    const ID: &str = "8f3b0c1d2e4f5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef";
    const UID: &str = "7f1c9a52-5d0e-4a3b-9c38-1f2e3d4c5b6a";

    fn container(pod: Option<&str>) -> Option<Container> {
        Some(Container::Container { id: ID.to_owned(), pod: pod.map(str::to_owned) })
    }

    #[test]
    fn the_paths_of_each_manager_are_parsed() {
        let systemd_pod = UID.replace('-', "_");
        let kube = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd_pod}.slice");
        assert_eq!(container_of(&format!("/system.slice/docker-{ID}.scope")), container(None));
        assert_eq!(container_of(&format!("/docker/{ID}")), container(None));
        assert_eq!(container_of(&format!("{kube}/cri-containerd-{ID}.scope")), container(Some(UID)));
        assert_eq!(container_of(&format!("{kube}/crio-{ID}.scope/container")), container(Some(UID)));
        assert_eq!(container_of(&format!("/kubepods/burstable/pod{UID}/{ID}")), container(Some(UID)));
        assert_eq!(container_of(&format!("/machine.slice/libpod-{ID}.scope")), container(None));
    }

    #[test]
    fn a_unit_is_named_and_a_session_is_not() {
        let unit = Some(Container::Unit("postgresql@16-main.service".to_owned()));
        assert_eq!(container_of("/system.slice/system-postgresql.slice/postgresql@16-main.service"), unit);
        assert_eq!(container_of("/user.slice/user-0.slice/session-1.scope"), None);
        assert_eq!(container_of("/"), None);
    }

    #[test]
    fn a_container_is_shown_with_twelve_digits() {
        let container = container_of(&format!("/docker/{ID}")).expect("a container");
        assert_eq!(container.to_string(), "container 8f3b0c1d2e4f");
    }
}
