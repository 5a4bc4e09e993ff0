//! Each verb has a page, and its examples are accepted.

use super::{Task, all, of};

#[test]
fn each_verb_has_a_task_two_examples_and_its_statuses() {
    for verb in crate::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = verb.get_name();
        let page = of(name).unwrap_or_else(|| panic!("add {name} to a list below crates/cli/src/pages"));
        assert!(page.examples.len() >= 2 && page.statuses.len() >= 3, "{name}");
        let begin = format!("flatwater {name}");
        assert!(page.examples.iter().all(|(_, command)| command.contains(&begin)), "{name}");
    }
}

#[test]
fn the_pages_are_in_the_order_of_their_tasks() {
    let places: Vec<usize> = all().filter_map(|page| Task::ALL.iter().position(|task| *task == page.task)).collect();
    assert!(places.is_sorted(), "{places:?}");
}

/// Examples use only options that exist.
#[test]
fn each_example_is_accepted_by_the_command_line() {
    for page in all().filter(|page| crate::command().find_subcommand(page.verb).is_some()) {
        for (_, command) in page.examples {
            let own = command.split(['|', '>', '&']).find(|part| part.trim().starts_with("flatwater"));
            let words: Vec<&str> = own.expect("a command").split_whitespace().collect();
            let words: Vec<&str> = words.iter().map(|word| if *word == "PID" { "1" } else { word }).collect();
            if let Err(error) = crate::command().try_get_matches_from(&words) {
                panic!("{command}: {error}");
            }
        }
    }
}
