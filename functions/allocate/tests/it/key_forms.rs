//! The forms of an Idempotency-Key.

use testing::{Event, Seed, Shop};

use crate::send;

#[tokio::test]
async fn bare_and_quoted_are_one_key() {
    let shop = Shop::open(Seed { on_hand: 100, order_qty: 100, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let long = "x".repeat(255);
    for (first, same) in [
        ("k", r#""k""#),
        (r#""j""#, "j"),
        ("  i ", r#"  "i"  "#),
        (r#""a b, c""#, r#"	"a b, c" "#),
        (r#""a\"b\\c""#, r#" "a\"b\\c""#),
        (r#""back\\slash""#, r"back\slash"),
        ("!#$%&'()*+-./:;<=>?@[]^_`{|}~", r#""!#$%&'()*+-./:;<=>?@[]^_`{|}~""#),
        (&long, &format!(r#""{long}""#)),
    ] {
        let event = |key: &str| shop.allocate(0).key(key).json(&shop.one(0, 1));
        let one = send(&sandbox, &event(first)).await;
        assert_eq!((one.status, one.header("idempotent-replayed")), (200, None), "{first}: {one:?}");
        let two = send(&sandbox, &event(same)).await;
        assert_eq!((&two.body, two.header("idempotent-replayed")), (&one.body, Some("true")), "{same}");
    }
    assert_eq!(shop.db.count("idempotency_key").await, 8);
}

#[tokio::test]
async fn keys_differ_by_case_and_by_inner_space() {
    let shop = Shop::open(Seed { on_hand: 100, order_qty: 100, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    for key in ["key", "KEY", "Key", r#""k ey""#, r#""k  ey""#, "ke", "key1", "k%65y", r#""ke\\y""#] {
        let reply = send(&sandbox, &shop.allocate(0).key(key).json(&shop.one(0, 1))).await;
        assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None), "{key}");
    }
}

#[tokio::test]
async fn a_malformed_key_is_refused_and_nothing_is_stored() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let before = shop.db.state().await;
    let event = || shop.allocate(0).json(&shop.one(0, 1));
    let (long, quoted) = ("x".repeat(256), format!(r#""{}""#, "x".repeat(256)));
    let mut malformed: Vec<(String, Event)> = [
        "",
        " ",
        "\t ",
        r#""""#,
        "\"\t\"",
        "a b",
        "a,b",
        "a, b",
        r#"a"b"#,
        r#""a"#,
        r#"a""#,
        r#"""#,
        r#""a""b""#,
        r#""a" b"#,
        r#""a"b"#,
        r#""a";p=1"#,
        r#""a"; p"#,
        r#""a","b""#,
        r#""a", "b""#,
        r#""a\x""#,
        r#""a\""#,
        r#""a\"#,
        "'a b'",
        ":YQ==:, :YQ==:",
        "a\tb",
        "(a b)",
        "ключ",
        "\"ключ\"",
        "k\u{a0}",
        "\"a\tb\"",
        &long,
        &quoted,
    ]
    .map(|key| (key.to_owned(), event().key(key)))
    .into();
    malformed.push(("missing".into(), event()));
    malformed.push(("sent twice".into(), event().key("k").key("k")));
    malformed.push(("sent twice, quoted".into(), event().key(r#""k""#).key(r#""k""#)));
    malformed.push(("sent twice, one empty".into(), event().key("k").key("")));
    for (key, event) in malformed {
        let reply = send(&sandbox, &event).await;
        assert_eq!(
            (reply.status, reply.error().as_deref()),
            (400, Some("idempotency_key_invalid")),
            "{key:?} {reply:?}"
        );
    }
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    assert_eq!(shop.db.state().await, before);
}

#[tokio::test]
async fn the_key_is_checked_before_the_body() {
    let shop = Shop::open(Seed::default()).await;
    let reply = send(&shop.db.endpoint(), &shop.allocate(0).key("a,b").body(b"{")).await;
    assert_eq!(reply.error().as_deref(), Some("idempotency_key_invalid"));
}
