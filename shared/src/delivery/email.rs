//! The confirmation mail to an order's account manager after an allocation: what was allocated and what is still open, as
//! text and as HTML. Pure: renders and sends nothing.

use serde::Deserialize;

/// `holdfast.relay_facts`, read just before the mail is sent.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Facts {
    Allocation(Allocation),
    Test(Test),
}

/// `holdfast.test_facts`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Test {
    #[serde(default = "yes")]
    sender_allowed: bool,
    to: String,
    #[serde(default)]
    paused: Option<String>,
    to_name: String,
    /// The destination's name.
    test: String,
}

/// `holdfast.confirmation_facts`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allocation {
    /// Absent before the release that has allowed senders.
    #[serde(default = "yes")]
    sender_allowed: bool,
    to: String,
    /// Absent before the release that has paused addresses.
    #[serde(default)]
    paused: Option<String>,
    to_name: String,
    order_number: String,
    customer_name: String,
    customer_po: Option<String>,
    /// One per SKU, in the order of their events.
    allocations: Vec<Allocated>,
    lines: Vec<Line>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allocated {
    code: String,
    style_name: String,
    qty: i64,
    ats_after: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    code: String,
    qty: i64,
    qty_allocated: i64,
    qty_shipped: i64,
}

impl Allocated {
    fn sentence(&self) -> String {
        let Self { qty, code, style_name, ats_after } = self;
        format!("{qty} × {code} ({style_name}), {ats_after} left available to sell")
    }
}

impl Line {
    fn open(&self) -> i64 {
        self.qty - self.qty_allocated - self.qty_shipped
    }
}

/// A rendered mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Whether the operator has allowed the tenant the sender that the destination names.
    pub sender_allowed: bool,
    /// One address.
    pub to: String,
    /// Why nothing may be sent there.
    pub paused: Option<String>,
    /// One line without control characters.
    pub subject: String,
    /// The plain-text part.
    pub text: String,
    /// The HTML part, with the same content.
    pub html: String,
}

/// Renders the mail that an event is about, the confirmation of an allocation or a test, from `holdfast.relay_facts`.
pub fn mail_of(facts: &str) -> Result<Mail, serde_json::Error> {
    Ok(match serde_json::from_str(facts)? {
        Facts::Allocation(facts) => confirmation(&facts),
        Facts::Test(facts) => test(&facts),
    })
}

fn test(Test { sender_allowed, to, paused, to_name, test }: &Test) -> Mail {
    let said =
        format!("This is a test of the destination {test}: confirmations of allocations will look like it.");
    Mail {
        sender_allowed: *sender_allowed,
        to: to.clone(),
        paused: paused.clone(),
        subject: one_line(&format!("Test of {test}")),
        text: format!("Hello {to_name},\n\n{said}\n"),
        html: format!(
            "<!doctype html><meta charset=\"utf-8\"><p>Hello {},</p><p>{}</p>",
            escaped(to_name),
            escaped(&said)
        ),
    }
}

fn confirmation(facts: &Allocation) -> Mail {
    let po = facts.customer_po.as_ref().map(|po| format!(", PO {po}")).unwrap_or_default();
    let heading = format!("Allocated to order {} of {}{po}:", facts.order_number, facts.customer_name);
    let allocated: Vec<String> = facts.allocations.iter().map(Allocated::sentence).collect();
    let text_allocated: String = allocated.iter().map(|line| format!("  {line}\n")).collect();
    let html_allocated: String = allocated.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
    let open: i64 = facts.lines.iter().map(Line::open).sum();
    let summary = match open {
        0 => "The order is complete: nothing is left to allocate.".to_owned(),
        1 => "1 unit of the order is left to allocate:".to_owned(),
        n => format!("{n} units of the order are left to allocate:"),
    };
    let waiting = || facts.lines.iter().filter(|line| line.open() > 0);
    let text_lines: String =
        waiting().map(|line| format!("  {}: {} of {}\n", line.code, line.open(), line.qty)).collect();
    let html_lines: String = waiting()
        .map(|line| {
            format!("<tr><td>{}</td><td>{}</td><td>{}</td></tr>", escaped(&line.code), line.open(), line.qty)
        })
        .collect();
    let table = if html_lines.is_empty() {
        String::new()
    } else {
        format!("<table><tr><th>SKU</th><th>Open</th><th>Ordered</th></tr>{html_lines}</table>")
    };
    Mail {
        subject: one_line(&format!(
            "Allocated: {} for order {}",
            what(&facts.allocations),
            facts.order_number
        )),
        text: format!("Hello {},\n\n{heading}\n{text_allocated}\n{summary}\n{text_lines}", facts.to_name),
        html: format!(
            "<!doctype html><meta charset=\"utf-8\"><p>Hello {},</p><p>{}</p><ul>{html_allocated}</ul><p>{}</p>{table}",
            escaped(&facts.to_name),
            escaped(&heading),
            escaped(&summary)
        ),
        sender_allowed: facts.sender_allowed,
        to: facts.to.clone(),
        paused: facts.paused.clone(),
    }
}

/// What was allocated, for the subject.
fn what(allocations: &[Allocated]) -> String {
    match allocations {
        [one] => format!("{} × {}", one.qty, one.code),
        all => format!("{} units of {} SKUs", all.iter().map(|one| one.qty).sum::<i64>(), all.len()),
    }
}

/// Keeps a line break in an order's number from adding a mail header.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mail_names_all_that_an_allocation_promised() {
        let facts = r#"{"to":"a@b.test","toName":"Ann","orderNumber":"SO-1","customerName":"A","customerPo":null,"allocations":[
            {"code":"S","styleName":"<Parka>","qty":3,"atsAfter":2},{"code":"M","styleName":"Vest","qty":4,"atsAfter":0}],"lines":[]}"#;
        let mail = mail_of(facts).expect("facts");
        assert_eq!(mail.subject, "Allocated: 7 units of 2 SKUs for order SO-1");
        for part in ["3 × S (<Parka>), 2 left", "4 × M (Vest), 0 left", "The order is complete"] {
            assert!(mail.text.contains(part), "{part}: {}", mail.text);
        }
        assert!(
            mail.html.contains("<li>3 × S (&lt;Parka&gt;), 2 left available to sell</li><li>4 × M"),
            "{}",
            mail.html
        );
    }

    #[test]
    fn it_names_what_was_allocated_and_what_is_left_and_nothing_breaks_out_of_it() {
        let facts = r#"{"to":"ann@tenant.test","toName":"Ann <b>","orderNumber":"SO-1\r\nBcc: x","customerName":"A & B",
            "customerPo":"PO-7","allocations":[{"code":"PARKA-S","styleName":"Parka","qty":3,"atsAfter":2}],"lines":[
            {"code":"PARKA-S","qty":6,"qtyAllocated":3,"qtyShipped":1},{"code":"PARKA-M","qty":2,"qtyAllocated":2,"qtyShipped":0}]}"#;
        let mail = mail_of(facts).expect("facts");
        assert_eq!(mail.to, "ann@tenant.test");
        assert_eq!(mail.subject, "Allocated: 3 × PARKA-S for order SO-1  Bcc: x");
        for part in [
            "3 × PARKA-S (Parka)",
            "PO PO-7",
            "2 left available",
            "2 units of the order are left",
            "PARKA-S: 2 of 6",
        ] {
            assert!(mail.text.contains(part), "{part}: {}", mail.text);
        }
        assert!(!mail.text.contains("PARKA-M"));
        for part in ["Ann &lt;b&gt;", "A &amp; B", "<td>PARKA-S</td><td>2</td><td>6</td>"] {
            assert!(mail.html.contains(part), "{part}: {}", mail.html);
        }
    }
}
