//! The last section of the page: gaps, machine, settings, hooks, own cost.

use super::element::Html;
use super::sections::{gap_count, plain_table};
use crate::facts;
use crate::numbers::size;
use flatwater_explain::Explanation;
use flatwater_recording::{Header, Recording};

pub fn section(html: &mut Html, recording: &Recording, explanation: &Explanation) {
    let header = &recording.header;
    html.tag("section", &[("id", "machine")], |html| {
        html.leaf("h2", &[], "Machine and gaps");
        gaps(html, explanation);
        folded(html, "Machine and run", &["what", "value"], &about(header, explanation));
        let hooks: Vec<Vec<String>> = header
            .hooks
            .iter()
            .map(|hook| {
                let state = facts::hook_state(hook.state).to_owned();
                vec![hook.hook.clone(), hook.serves.join(", "), state, hook.reason.clone()]
            })
            .collect();
        folded(html, "Kernel hooks", &["hook", "serves", "state", "reason"], &hooks);
        let setup: Vec<Vec<String>> =
            header.setup.iter().map(|(key, value)| vec![key.to_owned(), value.to_owned()]).collect();
        folded(html, "Settings", &["knob", "value"], &setup);
        if let Some(text) = &header.scenario_text {
            html.tag("details", &[], |html| {
                html.leaf("summary", &[], "Scenario");
                html.leaf("pre", &[("tabindex", "0")], text);
            });
        }
        let by = if header.written_by.is_empty() {
            String::new()
        } else {
            format!("Recorded by flatwater {}. ", header.written_by)
        };
        html.leaf("p", &[("class", "colophon")], &format!("{by}This page is complete: it loads nothing."));
    });
}

fn gaps(html: &mut Html, explanation: &Explanation) {
    if explanation.gaps.is_empty() {
        html.leaf("p", &[], "Nothing is missing.");
        return;
    }
    html.leaf("p", &[], &format!("{}. Missing values are not counted as zero.", gap_count(explanation)));
    let rows: Vec<Vec<String>> =
        explanation.gaps.iter().map(|gap| vec![gap.what.clone(), gap.why.clone(), gap.remedy.clone()]).collect();
    let columns = [("not seen", false), ("why", false), ("what can be done", false)];
    plain_table(html, "What was not recorded", &columns, &rows);
}

fn folded(html: &mut Html, title: &str, columns: &[&'static str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    let columns: Vec<(&str, bool)> = columns.iter().map(|name| (*name, false)).collect();
    html.tag("details", &[], |html| {
        html.leaf("summary", &[], title);
        plain_table(html, title, &columns, rows);
    });
}

fn about(header: &Header, explanation: &Explanation) -> Vec<Vec<String>> {
    let machine = &header.machine;
    let nodes: Vec<String> = machine
        .nodes
        .iter()
        .map(|node| {
            let memory = node.memory_bytes.map_or_else(|| "unknown memory".to_owned(), size);
            format!("node {}: {} CPUs, {memory}", node.node, node.cpus.len())
        })
        .collect();
    let target = &header.target;
    let parameters: Vec<String> = target.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pids: Vec<String> = target.pids.iter().map(u32::to_string).collect();
    let rows = [
        ("host", machine.hostname.clone()),
        ("kernel", machine.kernel.clone()),
        ("CPU", machine.cpu_model.clone()),
        ("CPUs", machine.cpus.map(|n| n.to_string())),
        ("memory", machine.memory_bytes.map(size)),
        ("swap", machine.swap_bytes.map(size)),
        ("page size", machine.page_bytes.map(size)),
        ("byte order", machine.endianness.map(|order| format!("{}-endian", order.name()))),
        ("PID namespace", machine.pid_namespace.map(|inode| inode.to_string())),
        ("nodes", some(nodes.join("; "))),
        ("hypervisor", machine.hypervisor.clone()),
        ("target", some(target.what.clone())),
        ("processes", some(pids.join(", "))),
        ("directory", target.directory.clone()),
        ("file system", target.file_system.clone()),
        ("device", target.device.clone()),
        ("cgroup", target.cgroup.clone()),
        ("parameters", some(parameters.join(", "))),
        ("noise floor", facts::noise_text(header)),
        ("own cost", some(facts::own_cost(explanation))),
    ];
    rows.into_iter().filter_map(|(name, value)| Some(vec![name.to_owned(), value?])).collect()
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
