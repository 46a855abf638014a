//! The bodies published with "Parsing JSON is a minefield", made to break parsers; read in place, not copied.

use std::path::PathBuf;

use testing::{Seed, Shop, case_dir};

use crate::send;

#[tokio::test]
async fn no_hostile_body_breaks_a_sandbox_or_uses_up_its_key() {
    let Some(folder) = case_dir("json-hostile/test_parsing") else { return };
    let shop = Shop::open(Seed { on_hand: 50, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let sku = shop.tenant.skus[0];
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    // The only one that is a quantity: 42.
    files.retain(|file| !file.ends_with("y_structure_lonely_int.json"));
    files.sort();
    assert!(files.len() > 250, "{}", files.len());
    for file in &files {
        let name = file.file_name().unwrap().to_string_lossy();
        let bytes = std::fs::read(file).unwrap();
        let mut wrapped = format!(r#"{{"skuId":"{sku}","qty":1,"x":"#).into_bytes();
        wrapped.extend_from_slice(&bytes);
        wrapped.push(b'}');
        let mut as_qty = format!(r#"{{"skuId":"{sku}","qty":"#).into_bytes();
        as_qty.extend_from_slice(&bytes);
        as_qty.push(b'}');
        let event = |body: &[u8]| shop.allocate(0).key("k").body(body);
        for event in [event(&bytes).base64(), event(&bytes), event(&wrapped), event(&as_qty)] {
            let reply = send(&sandbox, &event).await;
            // None is a valid request: an unknown member, or a quantity that is not an integer.
            assert_eq!(
                (reply.status, reply.error().as_deref()),
                (400, Some("invalid_body")),
                "{name}: {reply:?}"
            );
        }
    }
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    assert_eq!(send(&sandbox, &shop.allocate(0).key("k").json(&shop.one(0, 1))).await.status, 200);
}
