//! Wrong scenario files: each error names file, line and key, and suggests the intended name.

use super::Scenario;

const HEAD: &str = "name = 'x'\nsentence = 'X.'\n";
const JOURNAL: &str = "[[workload]]\nuse = 'journal'\n";

/// (text after the head, line of the error, words that the error must contain).
const WRONG: &[(&str, usize, &[&str])] = &[
    ("durtion = '3s'\n[[workload]]\nuse = 'journal'\n", 3, &["durtion", "did you mean 'duration'"]),
    ("duration = '3 parsecs'\n[[workload]]\nuse = 'journal'\n", 3, &["3 parsecs"]),
    ("threshold = 5\n[[workload]]\nuse = 'journal'\n", 3, &["expected a string"]),
    (
        "# vm.swapiness\n[setup]\n'vm.swapiness' = 10\n[[workload]]\nuse = 'journal'\n",
        5,
        &["did you mean 'vm.swappiness'"],
    ),
    ("[setup]\nvm.swapiness = 10\n[[workload]]\nuse = 'journal'\n", 4, &["did you mean 'vm.swappiness'"]),
    ("[setup]\n'vm.swappiness' = 300\n[[workload]]\nuse = 'journal'\n", 4, &["vm.swappiness", "300", "0 to 200"]),
    ("[[workload]]\nuse = 'jornal'\n", 4, &["jornal", "did you mean 'journal'"]),
    ("[[workload]]\nuse = 'journal'\nintervall = '1s'\n", 5, &["intervall", "did you mean 'interval'"]),
    ("[[workload]]\nuse = 'journal'\nlable = 'a'\n", 5, &["lable", "did you mean 'label'"]),
    ("[[workload]]\nuse = 'journal'\ninterval = 'soon'\n", 5, &["interval", "soon", "a duration"]),
    ("[[workload]]\nuse = 'journal'\nrole = 'villain'\n", 5, &["villain", "neighbour"]),
    ("[[workload]]\nuse = 'stream'\n[[workload]]\nuse = 'stream'\n", 5, &["stream", "label"]),
    ("[machine.disk]\nwrite_bsp = '1MiB'\n[[workload]]\nuse = 'journal'\n", 4, &["did you mean 'write_bps'"]),
    ("[[machine.device]]\nname = 'USB'\n[[workload]]\nuse = 'journal'\n", 4, &["'USB' cannot name a device"]),
    ("[[machine.device]]\nname = 'sda'\n[[workload]]\nuse = 'journal'\n", 4, &["'sda'", "two devices"]),
    (
        "[[machine.device]]\nname = 'usb'\nset = { vm.swappiness = 1 }\n[[workload]]\nuse = 'journal'\n",
        5,
        &["vm.swappiness", "[setup]"],
    ),
    (
        "[[machine.device]]\nname = 'usb'\ndisk = { seak = '8ms' }\n[[workload]]\nuse = 'journal'\n",
        5,
        &["did you mean 'seek'"],
    ),
    (
        "[[machine.device]]\nname = 'usb'\n[[workload]]\nuse = 'journal'\ndevice = 'ubs'\n",
        7,
        &["did you mean 'usb'", "sda, usb"],
    ),
    ("[machine]\nnodes = ['much']\n[[workload]]\nuse = 'journal'\n", 4, &["much"]),
    ("[[workload]]\nuse = 'journal'\n[[timeline]]\nat = '2h'\nset = { 'vm.swappiness' = 1 }\n", 6, &["2h", "30"]),
    ("[[workload]]\nuse = 'journal'\n[[timeline]]\nat = '1s'\nset = { 'mount.size' = '1GiB' }\n", 7, &["mount.size"]),
    ("[[workload]]\nuse = 'journal'\n[[fix]]\nname = 'a'\nsentnce = 'A.'\nset = {}\n", 7, &["did you mean 'sentence'"]),
    ("[[workload]\nuse = 'journal'\n", 3, &[]),
    ("[setup]\n'vm.swappiness' = 10\n", 1, &["at least one [[workload]]"]),
];

#[test]
fn errors_name_file_and_line_and_suggest_the_intended_name() {
    for (text, line, wanted) in WRONG {
        let error = Scenario::parse("x.toml", &format!("{HEAD}{text}")).expect_err(text).to_string();
        assert!(error.starts_with(&format!("x.toml:{line}: ")), "{text}\n{error}");
        assert!(wanted.iter().all(|word| error.contains(word)), "{text}\n{error}");
    }
}

#[test]
fn a_knob_needs_no_quotes() {
    let text = format!("{HEAD}[setup]\nvm.dirty_bytes = '64MiB'\n{JOURNAL}");
    let scenario = Scenario::parse("x.toml", &text).expect("a scenario");
    assert_eq!(scenario.setup.get("vm.dirty_bytes"), Some("67108864"));
}

#[test]
fn devices_have_their_own_disk_and_settings_and_workloads_select_one() {
    let device = "[[machine.device]]\nname = 'usb'\ndisk = { write_bps = '4MB', file_system = 'ext2' }\n\
                  set = { bdi.max_ratio = 5, 'mount.options' = 'noatime' }\n";
    let text = format!("{HEAD}{device}{JOURNAL}[[workload]]\nuse = 'stream'\ndevice = 'usb'\n");
    let mut scenario = Scenario::parse("x.toml", &text).expect("a scenario");
    assert_eq!(scenario.workloads.iter().map(|spec| spec.device).collect::<Vec<_>>(), [0, 1]);
    scenario.set("usb.bdi.max_ratio=10").expect("a setting of the device");
    let (name, disk, setup) = scenario.devices().nth(1).expect("the second");
    assert_eq!((name, disk.write_bytes_per_s, disk.file_system.as_deref()), ("usb", Some(4_000_000), Some("ext2")));
    assert_eq!((setup.get("bdi.max_ratio"), setup.get("mount.options")), (Some("10"), Some("noatime")));
    assert!(scenario.set("usb.vm.swappiness=1").is_err() && scenario.setup.get("bdi.max_ratio").is_none());
}

#[test]
fn workloads_get_role_and_name_from_the_scenario() {
    let text = format!("{HEAD}{JOURNAL}[[workload]]\nuse = 'journal'\nlabel = 'neighbours'\nrole = 'neighbour'\n");
    let scenario = Scenario::parse("x.toml", &text).expect("a scenario");
    let actors = |place: usize| {
        let spec = &scenario.workloads[place];
        let built = (spec.entry.build)(&spec.params, 1).expect("built");
        spec.actors(built.as_ref()).into_iter().map(|actor| (actor.name, actor.role)).collect::<Vec<_>>()
    };
    assert_eq!(actors(0), [("journal-0".to_owned(), crate::Role::Foreground)]);
    assert_eq!(actors(1), [("neighbours-0".to_owned(), crate::Role::Neighbour)]);
}
