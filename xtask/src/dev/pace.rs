//! Notices when the stack has become sluggish: something between caller and function waits that should not.

use std::time::{Duration, Instant};

const REQUESTS: usize = 15;
/// A request's time on a machine that does nothing else.
const USUAL: Duration = Duration::from_millis(5);
/// Not reached on a busy machine, but by one wait for a delayed acknowledgement.
const FAR_OFF: Duration = Duration::from_millis(25);

/// Times some requests, one after the other, and prints a line if they take far longer than usual.
pub async fn check(base_url: &str) {
    let client = reqwest::Client::new();
    let mut took = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let begun = Instant::now();
        if let Ok(answer) = client.get(format!("{base_url}/health")).send().await {
            let _ = answer.bytes().await;
            took.push(begun.elapsed());
        }
    }
    if let Some(remark) = remark(took) {
        println!("{remark}");
    }
}

fn remark(mut took: Vec<Duration>) -> Option<String> {
    took.sort_unstable();
    let median = *took.get(took.len() / 2)?;
    (median > FAR_OFF).then(|| {
        format!(
            "! requests take {} ms at the median; {} ms is usual, unless the machine is busy",
            median.as_millis(),
            USUAL.as_millis()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_median_that_is_far_off_is_remarked_on() {
        let ms = |all: &[u64]| all.iter().copied().map(Duration::from_millis).collect();
        assert_eq!(remark(ms(&[3, 900, 4, 5, 900])), None);
        let said = remark(ms(&[45, 3, 46, 44, 90])).expect("a remark");
        assert!(said.contains("45 ms at the median; 5 ms is usual"), "{said}");
    }
}
