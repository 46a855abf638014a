//! Counts messages of the PostgreSQL protocol on a connection without TLS: those that tell round trips and commits.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Query and Sync messages, after which the client waits.
    pub requests: u64,
    /// ReadyForQuery messages.
    pub replies: u64,
    /// ReadyForQuery messages with the status "not in a transaction": a transaction has ended, explicit or implicit.
    pub commits: u64,
    /// How often the client sent after the server had, however many messages.
    pub round_trips: u64,
}

/// Counts the messages of one connection, from its beginning.
pub struct MessageCounter {
    from_client: Messages,
    from_server: Messages,
    client_sent_last: bool,
    counts: Counts,
}

impl MessageCounter {
    pub fn new() -> Self {
        Self {
            from_client: Messages::new(LENGTH_BYTES),
            from_server: Messages::new(HEADER_BYTES),
            client_sent_last: false,
            counts: Counts::default(),
        }
    }

    pub fn client_sent(&mut self, bytes: &[u8]) {
        let counts = &mut self.counts;
        self.from_client.feed(bytes, |tag, _| {
            counts.requests += u64::from(matches!(tag, b'Q' | b'S'));
        });
        counts.round_trips += u64::from(!self.client_sent_last);
        self.client_sent_last = true;
    }

    pub fn server_sent(&mut self, bytes: &[u8]) {
        let counts = &mut self.counts;
        self.from_server.feed(bytes, |tag, first| {
            if tag == b'Z' {
                counts.replies += 1;
                counts.commits += u64::from(first == b'I');
            }
        });
        self.client_sent_last = false;
    }

    /// Returns the counts since the last call.
    pub fn take(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}

/// A message is a tag, a length (its own four bytes included) and a body. The client's first message has no tag.
const LENGTH_BYTES: usize = 4;
const HEADER_BYTES: usize = 1 + LENGTH_BYTES;

/// Splits the bytes of one direction into messages.
struct Messages {
    header: [u8; HEADER_BYTES],
    header_len: usize,
    have: usize,
    body_left: usize,
    body_begins: bool,
}

impl Messages {
    fn new(first_header_len: usize) -> Self {
        Self {
            header: [0; HEADER_BYTES],
            header_len: first_header_len,
            have: 0,
            body_left: 0,
            body_begins: false,
        }
    }

    /// Calls `on` with the tag and the first body byte of every message (0 if it has none).
    fn feed(&mut self, bytes: &[u8], mut on: impl FnMut(u8, u8)) {
        let mut rest = bytes;
        while let Some(byte) = rest.first().copied() {
            if self.body_left > 0 {
                if std::mem::take(&mut self.body_begins) {
                    on(self.tag(), byte);
                }
                let taken = self.body_left.min(rest.len());
                self.body_left -= taken;
                rest = &rest[taken..];
                if self.body_left == 0 {
                    self.next_header();
                }
                continue;
            }
            self.header[self.have] = byte;
            self.have += 1;
            rest = &rest[1..];
            if self.have == self.header_len {
                self.body_left = self.length().saturating_sub(LENGTH_BYTES);
                self.body_begins = true;
                if self.body_left == 0 {
                    on(self.tag(), 0);
                    self.next_header();
                }
            }
        }
    }

    fn next_header(&mut self) {
        self.header_len = HEADER_BYTES;
        self.have = 0;
    }

    fn tag(&self) -> u8 {
        if self.header_len == HEADER_BYTES { self.header[0] } else { 0 }
    }

    fn length(&self) -> usize {
        let at = self.header_len - LENGTH_BYTES;
        self.header[at..self.header_len].iter().fold(0, |length, byte| (length << 8) | usize::from(*byte))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag], length.to_be_bytes().as_slice(), body].concat()
    }

    #[test]
    fn requests_and_commits_are_counted_however_the_bytes_arrive() {
        let startup = [&9_u32.to_be_bytes()[..], &[0, 3, 0, 0, 0]].concat();
        let begin = message(b'Q', b"begin\0");
        let pipelined = [message(b'B', b"x"), message(b'E', b"y"), message(b'S', b"")].concat();
        let mut counter = MessageCounter::new();
        counter.client_sent(&startup);
        counter.server_sent(&message(b'Z', b"I"));
        counter.take();
        counter.client_sent(&begin);
        counter.server_sent(&[message(b'C', b"BEGIN\0"), message(b'Z', b"T")].concat());
        for byte in &pipelined {
            counter.client_sent(&[*byte]);
        }
        let reply = [message(b'D', &[b'Z'; 300]), message(b'Z', b"I")].concat();
        for byte in &reply {
            counter.server_sent(&[*byte]);
        }
        let expected = Counts { requests: 2, replies: 2, commits: 1, round_trips: 2 };
        assert_eq!(counter.take(), expected);
    }
}
