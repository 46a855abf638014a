#![allow(missing_docs, clippy::all)]
use shared::testing::{Seed, TestDb};
use std::time::Duration;
use tokio::time::Instant;
#[path = "relay/support.rs"]
#[allow(dead_code)]
mod support;
use support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bench() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let dests: usize = std::env::var("DESTS").map_or(1, |d| d.parse().unwrap());
    let n: usize = std::env::var("N").map_or(10000, |d| d.parse().unwrap());
    let ms: u64 = std::env::var("MS").map_or(0, |d| d.parse().unwrap());
    if std::env::var("IDLE").is_ok() {
        db.execute(format!("insert into destination (tenant_id,name,kind,url,event_types) select '{t}','d'||n,'webhook','http://127.0.0.1:1/','{{none}}' from generate_series(1,10000) n;
insert into destination_secret (tenant_id,destination_id,secret) select tenant_id,id,'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw' from destination;
insert into outbox (tenant_id,destination_id,event_id,aggregate_type,aggregate_id,sequence,event_type,payload,processed_at)
select d.tenant_id,d.id,gen_random_uuid(),'tenant',d.tenant_id,n,'inbox.exception','{{\"x\":\"'||repeat('y',400)||'\"}}', now() from generate_series(1,10) n, destination d", t = tenant.id)).await;
    }
    for _ in 0..dests {
        let partner = Partner::start(move |_| async move {
            if ms > 0 {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            200.to_status()
        })
        .await;
        db.destination(&tenant, &partner.url, &["*"]).await;
    }
    db.emit(&tenant, n / dests).await;
    db.execute("vacuum analyze").await;
    let relay = relay(&db);
    let begun = Instant::now();
    let s = relay
        .run_once(Duration::ZERO, begun + Duration::from_secs(300))
        .await
        .unwrap();
    let t = begun.elapsed();
    println!("{s:?} {t:?} {:.0}/s", s.delivered as f64 / t.as_secs_f64());
    let begun = Instant::now();
    relay
        .run_once(Duration::ZERO, begun + Duration::from_secs(300))
        .await
        .unwrap();
    println!("empty drain {:?}", begun.elapsed());
}
