//! Names for every refusal, every end of a limit, and every reason to leave a cgroup alone for good.

use flatwater_recording::named_enum;

named_enum! {
    /// Why no limit is proposed, or why a proposed one is not applied.
    #[non_exhaustive]
    Refusal, sentence {
        OwnLimit => "own-limit", "the victim waits for a limit on its own cgroup";
        OwnGroup => "own-group", "the aggressor is in the victim's cgroup, or contains it";
        SharedJournal => "shared-journal",
            "both use one file system: a limited writer keeps journal transactions open, and the victim waits longer";
        FileSystemUnknown => "file-system-unknown", "it is not known whether both use one file system";
        LockHolder => "lock-holder",
            "the aggressor has a lock that the victim needs: a limit makes the victim wait longer";
        MeansUnknown => "means-unknown", "no limit acts on how the aggressor made the victim wait";
        WeakEvidence => "weak-evidence", "the aggressor answers for less than half of the victim's stall time";
        NotMeasured => "not-measured", "the evidence is sampled or inferred, not measured";
        Incomplete => "incomplete", "events were lost, or hooks are shed";
        GroupUnknown => "group-unknown", "the aggressor's cgroup is not known";
        RootGroup => "root-group", "the aggressor is in the root group, which cannot be limited";
        SystemGroup => "system-group", "the aggressor belongs to system.slice, init.scope or flatwater";
        UserSession => "user-session", "the aggressor is a user's session, and guard.allow does not name sessions";
        NotAllowed => "not-allowed", "guard.allow does not name the aggressor's cgroup";
        VictimNotListed => "victim-not-listed", "guard.victims does not name the victim's cgroup";
        VictimNotTrusted => "victim-not-trusted", "another user than root controls the victim's cgroup";
        GroupNotTrusted => "group-not-trusted", "another user than root controls the aggressor's cgroup";
        CgroupV1 => "cgroup-v1", "this machine has the controller in cgroup v1, whose limits buffered writes bypass";
        NoController => "no-controller", "the controller is not enabled for the aggressor's cgroup";
        ReadOnly => "read-only", "the cgroup file system is read-only for flatwater";
        DeviceUnknown => "device-unknown", "the device that the victim waited for is not known";
        RateUnknown => "rate-unknown", "it is not known how much the aggressor uses, so no limit can be computed";
        BelowFloor => "below-floor", "the aggressor uses less than the lowest permitted limit";
        KnobInUse => "knob-in-use", "the setting has a value already, which another program or person chose";
        KnobUnreadable => "knob-unreadable", "the present value of the setting cannot be read";
        OneAtATime => "one-at-a-time", "another limit of the guard is in force";
        CoolingOff => "cooling-off", "the guard limited this cgroup a short time ago";
        StoodBack => "stood-back", "the guard leaves this cgroup alone for good";
        ModeAdvise => "mode-advise", "guard.mode is \"advise\"";
        ClockJumped => "clock-jumped", "the clock jumped, so that the observed times are not reliable";
    }
}

named_enum! {
    /// Why a limit ended.
    #[non_exhaustive]
    Release, sentence {
        NotProven => "not-proven", "the victim's gain was not proven";
        TooLittleGain => "too-little-gain", "the victim gained, but less than guard.gain_min";
        TimeLimit => "time-limit", "the limit was in force for guard.hold";
        StallEnded => "stall-ended", "the victim did not stall any more, with or without the limit";
        VictimGone => "victim-gone", "the victim's processes have ended";
        NotObserved => "not-observed", "the victim's calls could not be observed";
        KnobChanged => "knob-changed", "another program or person changed the setting; their value stays";
        GroupGone => "group-gone", "the limited cgroup was removed";
        LeaseLost => "lease-lost", "the process that guarantees the end of the limit did not answer";
        ApplyFailed => "apply-failed", "the kernel refused the limit, or showed another value after it was written";
        Operator => "operator", "`flatwater guard release`";
        PolicyChanged => "policy-changed", "the configuration no longer permits the limit";
        ClockJumped => "clock-jumped", "the clock jumped, for example while the machine was suspended";
        DaemonEnded => "daemon-ended", "the daemon ended in order";
    }
}

named_enum! {
    /// Why the guard leaves a cgroup alone until the daemon starts again.
    #[non_exhaustive]
    StandBack, sentence {
        KnobChanged => "knob-changed", "another program or person changed a setting that the guard had set";
        Operator => "operator", "`flatwater guard release`";
        Twice => "twice", "two limits on it in a row were not proven";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Refusal, Release, StandBack};

    #[test]
    fn each_reason_has_a_unique_name_and_a_sentence() {
        let names: Vec<&str> = Refusal::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let releases: BTreeSet<&str> = Release::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(releases.len(), Release::ALL.len());
        assert!(Refusal::ALL.iter().all(|reason| reason.sentence().len() > 10));
        assert!(StandBack::ALL.iter().all(|reason| !reason.name().is_empty()));
    }
}
