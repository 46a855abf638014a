//! Tokens of an issuer that publishes its keys as a JWKS: RSA and elliptic curves, and attempts with wrong keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use shared::http::jwt::JwtVerifier;
use shared::runtime::config::{AuthConfig, JwtKeys};
use testing::{AUDIENCE, ISSUER, auth_config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A key server that gives every request the same answer, or none.
struct Issuer {
    url: String,
    requests: Arc<AtomicU32>,
    answer: watch::Sender<Option<(u16, String)>>,
    task: JoinHandle<()>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Issuer {
    async fn serving(keys: &[Value]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
        let (answer, current) = watch::channel(Some(set_of(keys)));
        let requests = Arc::new(AtomicU32::new(0));
        let count = requests.clone();
        let task = tokio::spawn(async move {
            let mut unanswered = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                count.fetch_add(1, Ordering::SeqCst);
                let Some((status, body)) = current.borrow().clone() else {
                    unanswered.push(stream);
                    continue;
                };
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        Self { url, requests, answer, task }
    }

    fn verifier(&self) -> JwtVerifier {
        JwtVerifier::new(&AuthConfig { keys: JwtKeys::JwksUrl(self.url.clone()), ..auth_config() }).unwrap()
    }

    fn fetches(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }
}

fn set_of(keys: &[Value]) -> (u16, String) {
    (200, json!({"keys": keys}).to_string())
}

/// A key pair: the private key, and the public one as an entry of the set.
struct Signer {
    key: EncodingKey,
    jwk: Value,
    algorithm: Algorithm,
}

fn elliptic(kid: &str) -> Signer {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let point = pair.public_key().as_ref().to_vec();
    let jwk = json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": kid,
        "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..])});
    let document = pair.to_pkcs8v1().unwrap();
    Signer { key: EncodingKey::from_ec_der(document.as_ref()), jwk, algorithm: Algorithm::ES256 }
}

/// PKCS #8 puts this many bytes before the PKCS #1 document of a 2048-bit key; `from_rsa_der` takes PKCS #1.
const PKCS8_HEADER_BYTES: usize = 26;

fn rsa(kid: &str) -> Signer {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let public = pair.public_key();
    let jwk = json!({"kty": "RSA", "use": "sig", "kid": kid,
        "n": URL_SAFE_NO_PAD.encode(public.modulus().big_endian_without_leading_zero()),
        "e": URL_SAFE_NO_PAD.encode(public.exponent().big_endian_without_leading_zero())});
    let document = pair.as_der().unwrap();
    Signer {
        key: EncodingKey::from_rsa_der(&document.as_ref()[PKCS8_HEADER_BYTES..]),
        jwk,
        algorithm: Algorithm::RS256,
    }
}

fn claims() -> Value {
    let now = jiff::Timestamp::now().as_second();
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "00000000-0000-0000-0000-000000000001", "exp": now + 600})
}

fn sign(signer: &Signer, kid: Option<&str>, claims: &Value) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(signer.algorithm) };
    encode(&header, claims, &signer.key).unwrap()
}

async fn status(verifier: &JwtVerifier, token: &str) -> u16 {
    verifier.verify(token).await.map_or_else(|problem| problem.status, |_| 200)
}

#[tokio::test]
async fn tokens_of_published_keys_are_good_and_the_set_is_fetched_once() {
    let (curve, prime) = (elliptic("curve"), rsa("prime"));
    let issuer = Issuer::serving(&[curve.jwk.clone(), prime.jwk.clone()]).await;
    let verifier = issuer.verifier();
    assert_eq!(issuer.fetches(), 0, "no call goes out before the first token");
    for _ in 0..3 {
        for (signer, kid) in [(&curve, "curve"), (&prime, "prime")] {
            let token = sign(signer, Some(kid), &claims());
            assert_eq!(verifier.verify(&token).await.unwrap()["sub"], claims()["sub"]);
        }
    }
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test]
async fn claims_are_checked_as_for_any_token() {
    let curve = elliptic("curve");
    let issuer = Issuer::serving(std::slice::from_ref(&curve.jwk)).await;
    let verifier = issuer.verifier();
    for (name, value) in [
        ("exp", json!(1_000_000)),
        ("exp", json!(null)),
        ("iss", json!("https://elsewhere.test")),
        ("aud", json!("another")),
        ("sub", json!(null)),
    ] {
        let mut claims = claims();
        claims[name] = value.clone();
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(status(&verifier, &sign(&curve, Some("curve"), &claims)).await, 401, "{name}: {value}");
    }
}

#[tokio::test]
async fn an_unpublished_key_is_401_and_does_not_cause_a_fetch_per_request() {
    let (curve, stranger) = (elliptic("curve"), elliptic("stranger"));
    let issuer = Issuer::serving(std::slice::from_ref(&curve.jwk)).await;
    let verifier = issuer.verifier();
    for _ in 0..20 {
        assert_eq!(status(&verifier, &sign(&stranger, Some("stranger"), &claims())).await, 401);
    }
    assert!(issuer.fetches() <= 2, "{} fetches", issuer.fetches());
    assert_eq!(
        status(&verifier, &sign(&stranger, Some("curve"), &claims())).await,
        401,
        "another's signature"
    );
    assert_eq!(status(&verifier, &sign(&curve, None, &claims())).await, 401, "no key named");
    assert_eq!(status(&verifier, &sign(&curve, Some("curve"), &claims())).await, 200);
}

#[tokio::test]
async fn a_public_key_is_never_taken_for_a_secret() {
    let (curve, prime) = (elliptic("curve"), rsa("prime"));
    let issuer = Issuer::serving(&[curve.jwk.clone(), prime.jwk.clone()]).await;
    let verifier = issuer.verifier();
    let published =
        |jwk: &Value, member: &str| URL_SAFE_NO_PAD.decode(jwk[member].as_str().unwrap()).unwrap();
    let secrets = [
        prime.jwk.to_string().into_bytes(),
        prime.jwk["n"].as_str().unwrap().as_bytes().to_vec(),
        published(&prime.jwk, "n"),
        [published(&curve.jwk, "x"), published(&curve.jwk, "y")].concat(),
        b"".to_vec(),
    ];
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        for secret in &secrets {
            for kid in ["prime", "curve"] {
                let header = Header { kid: Some(kid.into()), ..Header::new(algorithm) };
                let Ok(key) = EncodingKey::from_secret(secret) else {
                    continue;
                };
                let Ok(token) = encode(&header, &claims(), &key) else {
                    continue;
                };
                assert_eq!(status(&verifier, &token).await, 401);
            }
        }
    }
    let body = URL_SAFE_NO_PAD.encode(claims().to_string());
    for alg in ["none", "None", "NONE", "", "HS256", "ES256", "XX"] {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": alg, "kid": "curve"}).to_string());
        assert_eq!(status(&verifier, &format!("{header}.{body}.")).await, 401, "{alg}");
    }
    // A key must not be used with another algorithm than the one it names or its type allows.
    let crossed = Signer { key: rsa("x").key, jwk: json!(null), algorithm: Algorithm::RS256 };
    assert_eq!(status(&verifier, &sign(&crossed, Some("curve"), &claims())).await, 401);
}

#[tokio::test]
async fn keys_of_other_uses_in_the_set_are_ignored() {
    let curve = elliptic("curve");
    let strange = [
        json!({"kty": "RSA", "use": "enc", "alg": "RSA-OAEP-512", "kid": "enc", "n": curve.jwk["x"], "e": "AQAB"}),
        json!({"kty": "OKP", "crv": "X25519", "alg": "ECDH-ES", "kid": "okp", "x": curve.jwk["x"]}),
        json!({"kty": "EC", "crv": "secp256k1", "alg": "ES256K", "kid": "k1", "x": curve.jwk["x"], "y": curve.jwk["y"]}),
        json!({"kty": "AKP", "alg": "ML-DSA-44", "kid": "pq", "pub": "AA"}),
    ];
    for other in strange {
        let issuer = Issuer::serving(&[other.clone(), curve.jwk.clone()]).await;
        let token = sign(&curve, Some("curve"), &claims());
        assert_eq!(status(&issuer.verifier(), &token).await, 200, "beside {other}");
    }
}

/// The pause after the first failed fetch, and some more.
const FIRST_PAUSE: Duration = Duration::from_millis(1_050);

/// Whether a pause of a second that began at `since` is surely not over.
fn still_paused(since: Instant) -> bool {
    since.elapsed() < Duration::from_millis(950)
}

/// Repeats what only tells something while a pause lasts, until it was quick enough: it returns false where it was not.
async fn until_quick_enough(attempt: impl AsyncFn() -> bool) {
    for _ in 0..20 {
        if attempt().await {
            return;
        }
    }
    panic!("twenty times, a second was not enough for a few local requests");
}

#[tokio::test]
async fn while_the_issuer_fails_a_new_sandbox_is_unavailable_and_an_old_one_goes_on() {
    let curve = elliptic("curve");
    let issuer = Issuer::serving(std::slice::from_ref(&curve.jwk)).await;
    let token = sign(&curve, Some("curve"), &claims());
    let old = issuer.verifier();
    assert_eq!(status(&old, &token).await, 200);
    for answer in [(500, "{}".to_owned()), (200, "<html>".to_owned()), (404, String::new())] {
        until_quick_enough(async || {
            let new = issuer.verifier();
            issuer.answer.send_replace(Some(answer.clone()));
            let failed = Instant::now();
            assert_eq!(status(&new, &token).await, 503);
            assert_eq!(status(&old, &token).await, 200);
            assert_eq!(status(&new, "rubbish").await, 401, "no set is needed to see that");
            issuer.answer.send_replace(Some(set_of(std::slice::from_ref(&curve.jwk))));
            let again = status(&new, &token).await;
            if !still_paused(failed) {
                return false;
            }
            assert_eq!(again, 503, "not asked again yet");
            tokio::time::sleep(FIRST_PAUSE).await;
            assert_eq!(status(&new, &token).await, 200);
            true
        })
        .await;
    }
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_makes_the_first_token_wait_and_no_other() {
    let curve = elliptic("curve");
    let issuer = Issuer::serving(&[]).await;
    let token = sign(&curve, Some("curve"), &claims());
    let bogus: Vec<_> = (0..50).map(|n| sign(&curve, Some(&format!("bogus {n}")), &claims())).collect();
    until_quick_enough(async || {
        issuer.answer.send_replace(None);
        let (verifier, before) = (issuer.verifier(), issuer.fetches());
        let fetches = || issuer.fetches() - before;
        assert_eq!(status(&verifier, &token).await, 503);
        let failed = Instant::now();
        let mut told = Vec::new();
        for token in &bogus {
            told.push(status(&verifier, token).await);
        }
        // A second fetch would take longer than the pause.
        let asked = fetches();
        if !still_paused(failed) && asked == 1 {
            return false;
        }
        assert_eq!((told, asked), (vec![503; bogus.len()], 1));
        tokio::time::sleep(FIRST_PAUSE).await;
        assert_eq!((status(&verifier, &token).await, fetches()), (503, 2));
        // The second failure doubles the pause.
        let failed = Instant::now();
        issuer.answer.send_replace(Some(set_of(std::slice::from_ref(&curve.jwk))));
        tokio::time::sleep(FIRST_PAUSE).await;
        let again = (status(&verifier, &token).await, fetches());
        if failed.elapsed() > Duration::from_millis(1_900) {
            return false;
        }
        assert_eq!(again, (503, 2));
        tokio::time::sleep(FIRST_PAUSE).await;
        assert_eq!((status(&verifier, &token).await, fetches()), (200, 3));
        true
    })
    .await;
}

#[tokio::test]
async fn a_fetch_that_a_request_gives_up_counts_as_failed() {
    let curve = elliptic("curve");
    let issuer = Issuer::serving(&[]).await;
    let token = sign(&curve, Some("curve"), &claims());
    until_quick_enough(async || {
        issuer.answer.send_replace(None);
        let (verifier, before) = (issuer.verifier(), issuer.fetches());
        let asked = Instant::now();
        tokio::select! {
            _ = verifier.verify(&token) => panic!("the issuer does not answer"),
            () = async {
                while issuer.fetches() == before {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            } => {}
        }
        let next = status(&verifier, &token).await;
        if !still_paused(asked) && issuer.fetches() == before + 1 {
            return false;
        }
        assert_eq!((next, issuer.fetches()), (503, before + 1));
        true
    })
    .await;
}
