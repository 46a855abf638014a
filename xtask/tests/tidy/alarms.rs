//! Each alarm of the template names its page in the runbook, and each page there is of an alarm.

use std::collections::BTreeSet;

use crate::{NOTHING, Yaml, bare, read, yaml};

const RUNBOOK: &str = "docs/runbook.md";

/// Where the alarms' descriptions and the runbook's pages (its third headings) differ.
fn differences(template: &Yaml, runbook: &str) -> Vec<String> {
    let pages: BTreeSet<&str> = runbook.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let resources = template["Resources"].as_mapping().unwrap().iter();
    let alarms = resources.filter(|(_, resource)| resource["Type"] == "AWS::CloudWatch::Alarm");
    let mut named = BTreeSet::new();
    let mut faults = Vec::new();
    for (id, alarm) in alarms {
        let description = bare(&alarm["Properties"]["AlarmDescription"]).as_str().unwrap_or_default();
        match description.trim().rsplit_once(&format!("{RUNBOOK}#")) {
            Some((_, page)) if pages.contains(page) => _ = named.insert(page),
            _ => faults.push(format!("{id:?} names no page of the runbook: {description}")),
        }
    }
    faults.extend(pages.difference(&named).map(|page| format!("no alarm names the page {page}")));
    faults
}

#[test]
fn every_alarm_has_a_page_in_the_runbook() {
    assert_eq!(differences(&yaml("template.yaml"), &read(RUNBOOK)), NOTHING);
}

#[test]
fn an_alarm_without_a_page_and_a_page_without_an_alarm_are_found() {
    let template = "
Resources:
  Told: { Type: 'AWS::CloudWatch::Alarm', Properties: { AlarmDescription: 'It fails. docs/runbook.md#told' } }
  Untold: { Type: 'AWS::CloudWatch::Alarm', Properties: { AlarmDescription: It fails. } }
";
    let found = differences(&yaml_serde::from_str(template).unwrap(), "### told\n### gone\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("Untold") && found[1].contains("gone"), "{found:?}");
}
