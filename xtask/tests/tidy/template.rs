//! What the template must say of every function, whatever is added to it.

use std::collections::BTreeSet;

use crate::{NOTHING, Yaml, bare, read, string, yaml};

/// What a browser's page sends, and what it must be able to read of an answer.
const SENT: [&str; 3] = ["Authorization", "Idempotency-Key", "If-Match"];
const READ: [&str; 5] = ["ETag", "Location", "Retry-After", "Idempotent-Replayed", "X-Request-Id"];

/// What knows no resources.
const ANYWHERE: [&str; 3] =
    ["cloudwatch:DescribeAlarms", "xray:PutTelemetryRecords", "xray:PutTraceSegments"];

fn each(value: &Yaml, seen: &mut impl FnMut(&Yaml)) {
    seen(value);
    match value {
        Yaml::Sequence(items) => items.iter().for_each(|item| each(item, seen)),
        Yaml::Mapping(members) => members.values().for_each(|member| each(member, seen)),
        Yaml::Tagged(tagged) => each(&tagged.value, seen),
        _ => (),
    }
}

/// The parameters with the ARNs of secrets that are named here.
fn secrets(value: &Yaml) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    each(value, &mut |value| {
        if let Some(name) = value.as_str().filter(|text| text.ends_with("SecretArn")) {
            found.insert(name.to_owned());
        }
    });
    found
}

fn resources<'a>(template: &'a Yaml, kind: &str) -> Vec<(String, &'a Yaml)> {
    let all = template["Resources"].as_mapping().unwrap().iter();
    all.filter(|(_, resource)| resource["Type"] == kind)
        .map(|(id, resource)| (string(id), &resource["Properties"]))
        .collect()
}

fn functions(template: &Yaml) -> Vec<(String, &Yaml)> {
    resources(template, "AWS::Serverless::Function")
}

/// Functions whose role may read other secrets than their environment names.
fn other_secrets(template: &Yaml) -> Vec<String> {
    let mut faults = Vec::new();
    for (id, function) in functions(template) {
        let named = secrets(&function["Environment"]);
        let role = string(bare(&function["Role"]));
        let role = &template["Resources"][role.trim_end_matches(".Arn")];
        let mut readable = BTreeSet::new();
        each(role, &mut |statement| {
            if statement["Action"] == "secretsmanager:GetSecretValue" {
                readable.extend(secrets(&statement["Resource"]));
            }
        });
        if role.is_null() || named != readable {
            faults.push(format!("{id} is given {named:?} and may read {readable:?}"));
        }
    }
    faults
}

fn words(value: &Yaml) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    each(value, &mut |value| found.extend(value.as_str().map(str::to_owned)));
    found
}

/// What a role may do by a wildcard, or to everything of an account.
fn wide_rights(template: &Yaml) -> Vec<String> {
    let mut faults = Vec::new();
    for (id, role) in resources(template, "AWS::IAM::Role") {
        each(role, &mut |statement| {
            let everywhere = words(&statement["Resource"]).contains("*");
            let wide =
                |action: &String| action.contains('*') || everywhere && !ANYWHERE.contains(&action.as_str());
            faults.extend(
                words(&statement["Action"]).into_iter().filter(wide).map(|action| format!("{id}: {action}")),
            );
        });
    }
    faults
}

/// Schedules that leave to AWS how often a late tick is repeated: for a day, 185 times.
fn unbounded_schedules(template: &Yaml) -> Vec<String> {
    let mut faults = Vec::new();
    for (id, function) in functions(template) {
        for (name, event) in function["Events"].as_mapping().into_iter().flatten() {
            let (retries, properties) = (&event["Properties"]["RetryPolicy"], &event["Properties"]);
            let is_bounded =
                ["MaximumRetryAttempts", "MaximumEventAgeInSeconds"].iter().all(|n| retries[*n].is_u64());
            if event["Type"] == "ScheduleV2" && (!is_bounded || properties["RoleArn"].is_null()) {
                faults.push(format!("{id} {}", string(name)));
            }
        }
    }
    faults
}

/// Functions that reckon with another time limit than they have.
fn other_time_limits(template: &Yaml) -> Vec<String> {
    let mut faults = Vec::new();
    for (id, function) in functions(template) {
        let variables = function["Environment"]["Variables"].as_mapping().into_iter().flatten();
        for (name, value) in variables.filter(|(name, _)| string(name).ends_with("_TIMEOUT_SECONDS")) {
            if value != &function["Timeout"] {
                faults.push(format!("{id}: {}", string(name)));
            }
        }
    }
    faults
}

/// Functions whose lines are no JSON, or whose level nobody can set.
fn other_logs(template: &Yaml) -> Vec<String> {
    let level = |function: &Yaml| string(bare(&function["LoggingConfig"]["ApplicationLogLevel"]));
    let faults = functions(template).into_iter().filter(|(_, function)| {
        function["LoggingConfig"]["LogFormat"] != "JSON" || level(function) != "LogLevel"
    });
    faults.map(|(id, _)| id).collect()
}

/// Headers that a page of the ERP could not send or read.
fn untold_headers(template: &Yaml) -> Vec<String> {
    let mut faults = Vec::new();
    for (id, api) in resources(template, "AWS::Serverless::HttpApi") {
        for (list, wanted) in [("AllowHeaders", &SENT[..]), ("ExposeHeaders", &READ[..])] {
            let mut told = BTreeSet::new();
            each(&api["CorsConfiguration"], &mut |value| {
                told.extend(value[list].as_sequence().into_iter().flatten().map(string));
            });
            faults.extend(
                wanted.iter().filter(|name| !told.contains(**name)).map(|name| format!("{id}: {name}")),
            );
        }
    }
    faults
}

#[test]
fn a_function_may_read_the_secrets_that_it_is_given_and_no_others() {
    assert_eq!(other_secrets(&yaml("template.yaml")), NOTHING);
}

#[test]
fn a_role_may_do_named_things_to_named_resources() {
    assert_eq!(wide_rights(&yaml("template.yaml")), NOTHING);
}

#[test]
fn no_secret_is_baked_into_the_template() {
    assert!(
        !read("template.yaml").contains("resolve:"),
        "a secret would stand in a function's configuration"
    );
}

#[test]
fn every_schedule_says_how_long_a_tick_is_worth_something() {
    assert_eq!(unbounded_schedules(&yaml("template.yaml")), NOTHING);
}

#[test]
fn functions_know_their_time_limits() {
    assert_eq!(other_time_limits(&yaml("template.yaml")), NOTHING);
}

#[test]
fn every_function_logs_json_at_a_level_that_can_be_set() {
    assert_eq!(other_logs(&yaml("template.yaml")), NOTHING);
}

#[test]
fn a_page_in_a_browser_may_send_and_read_what_it_needs() {
    assert_eq!(untold_headers(&yaml("template.yaml")), NOTHING);
}

#[test]
fn each_of_these_faults_is_found() {
    let template = "
Resources:
  Api: { Type: 'AWS::Serverless::HttpApi', Properties: { CorsConfiguration: !If [B, { AllowHeaders: [Authorization, If-Match],
    ExposeHeaders: [ETag, Location, Retry-After, Idempotent-Replayed, X-Request-Id] }, !Ref N] } }
  R: { Type: 'AWS::IAM::Role', Properties: { Policies: [{ Statement: [
    { Action: 'secretsmanager:GetSecretValue', Resource: [!Ref ASecretArn, !If [C, !Ref BSecretArn, !Ref N]] }] }] } }
  W: { Type: 'AWS::IAM::Role', Properties: { Policies: [{ Statement: [{ Action: 'ses:SendEmail', Resource: '*' }, { Action: ['sqs:*'], Resource: q },
    { Action: 'xray:PutTraceSegments', Resource: '*' }] }] } }
  F:
    Type: AWS::Serverless::Function
    Properties:
      Role: !GetAtt R.Arn
      Timeout: 90
      LoggingConfig: { LogFormat: Text, ApplicationLogLevel: !Ref LogLevel }
      Environment: { Variables: { A_ARN: !Ref ASecretArn, X_TIMEOUT_SECONDS: 60 } }
      Events: { Tick: { Type: ScheduleV2, Properties: { RoleArn: a, RetryPolicy: { MaximumRetryAttempts: 0 } } } }
";
    let template: Yaml = yaml_serde::from_str(template).unwrap();
    assert!(other_secrets(&template)[0].contains("may read {\"ASecretArn\", \"BSecretArn\"}"));
    assert_eq!(wide_rights(&template), ["W: ses:SendEmail", "W: sqs:*"]);
    assert_eq!(unbounded_schedules(&template), ["F Tick"]);
    assert_eq!(other_time_limits(&template), ["F: X_TIMEOUT_SECONDS"]);
    assert_eq!(other_logs(&template), ["F"]);
    assert_eq!(untold_headers(&template), ["Api: Idempotency-Key"]);
}
