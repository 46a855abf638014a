//! What happened, in a form that an independent checker reads: JSON Lines, one for each invocation and one for each answer, in
//! the order of their times. `chaos/check_history.py` reads it.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::intent::{Intent, Told};
use crate::world::{ON_HAND, World};

/// Writes the file. The first line names the counters and their stock in the beginning.
pub fn write(path: &Path, world: &World, start: Instant, intents: &[Intent]) -> Result<()> {
    let mut lines: Vec<(f64, Value)> = Vec::new();
    for intent in intents.iter().filter(|intent| intent.request.key.is_some()) {
        let request = &intent.request;
        for (n, one) in intent.tries.iter().enumerate() {
            let (sent, ended) = (Intent::at(start, one.sent), Intent::at(start, one.ended));
            let op = json!([intent.id, n]);
            let body: Value = serde_json::from_str(&request.body)?;
            lines.push((
                sent,
                json!({"at": sent, "type": "invoke", "op": op, "client": intent.client, "key": request.key,
                "method": request.method, "path": request.path, "body": body}),
            ));
            let answer = match &one.told {
                Told::Answer(kept) => {
                    json!({"at": ended, "type": "answer", "op": op, "status": kept.status, "body": kept.json()})
                }
                Told::Unchanged => json!({"at": ended, "type": "fail", "op": op}),
                Told::InUse | Told::Unknown(_) => json!({"at": ended, "type": "unknown", "op": op}),
            };
            lines.push((ended, answer));
        }
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let counters: Vec<_> =
        world.counters.iter().map(|(sku, _)| json!({"skuId": sku, "ats": ON_HAND})).collect();
    let file = std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = std::io::BufWriter::new(file);
    writeln!(out, "{}", json!({"type": "begin", "counters": counters}))?;
    for (_, line) in lines {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

/// Prints all that concerned these orders and SKUs: when, who, what, and what they were told.
pub fn print(start: Instant, intents: &[Intent], concerned: &std::collections::BTreeSet<uuid::Uuid>) {
    let ids: Vec<String> = concerned.iter().map(uuid::Uuid::to_string).collect();
    let touches = |intent: &&Intent| {
        ids.iter().any(|id| intent.request.path.contains(id) || intent.request.body.contains(id))
    };
    for intent in intents.iter().filter(touches) {
        println!(
            "#{} client {} {} {} {}",
            intent.id, intent.client, intent.request.method, intent.request.path, intent.request.body
        );
        for one in &intent.tries {
            let told = format!("{:?}", one.told);
            let told: String = told.chars().take(300).collect();
            println!(
                "    {:>10.3} … {:>10.3} ms  {told}",
                Intent::at(start, one.sent),
                Intent::at(start, one.ended)
            );
        }
    }
}
