//! Reads along on a PostgreSQL connection without TLS and counts what makes a request slow: round trips and commits.

/// What was seen on one connection, or on several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Messages after which the client must wait: Query and Sync.
    pub requests: u64,
    /// ReadyForQuery messages.
    pub replies: u64,
    /// ReadyForQuery messages outside a transaction: each ends one, explicit or implicit.
    pub commits: u64,
    /// Times the direction turned from server to client and back: round trips, however many messages one carries.
    pub turns: u64,
}

/// Follows both directions of one connection.
pub struct Wire {
    asked: Frames,
    answered: Frames,
    client_spoke_last: bool,
    seen: Seen,
}

impl Wire {
    /// Of a connection that has carried nothing yet.
    pub fn new() -> Self {
        Self {
            asked: Frames::new(4),
            answered: Frames::new(5),
            client_spoke_last: false,
            seen: Seen::default(),
        }
    }

    /// Bytes of the client.
    pub fn client_sent(&mut self, bytes: &[u8]) {
        let seen = &mut self.seen;
        self.asked.feed(bytes, |tag, _| {
            seen.requests += u64::from(matches!(tag, b'Q' | b'S'));
        });
        seen.turns += u64::from(!self.client_spoke_last);
        self.client_spoke_last = true;
    }

    /// Bytes of the server.
    pub fn server_sent(&mut self, bytes: &[u8]) {
        let seen = &mut self.seen;
        self.answered.feed(bytes, |tag, first| {
            if tag == b'Z' {
                seen.replies += 1;
                seen.commits += u64::from(first == b'I');
            }
        });
        self.client_spoke_last = false;
    }

    /// What was seen since the last time this was asked.
    pub fn take(&mut self) -> Seen {
        std::mem::take(&mut self.seen)
    }
}

/// One direction's messages: a tag (but for the client's first), four bytes of length, a body.
struct Frames {
    header: [u8; 5],
    header_len: usize,
    have: usize,
    body_left: usize,
    body_begins: bool,
}

impl Frames {
    fn new(first_header_len: usize) -> Self {
        Self { header: [0; 5], header_len: first_header_len, have: 0, body_left: 0, body_begins: false }
    }

    /// Calls `on` with the tag and first body byte of every message that has a body (0 for none).
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
                self.body_left = self.length().saturating_sub(4);
                self.body_begins = true;
                if self.body_left == 0 {
                    on(self.tag(), 0);
                    self.next_header();
                }
            }
        }
    }

    fn next_header(&mut self) {
        self.header_len = 5;
        self.have = 0;
    }

    fn tag(&self) -> u8 {
        if self.header_len == 5 { self.header[0] } else { 0 }
    }

    fn length(&self) -> usize {
        let at = self.header_len - 4;
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
        let mut wire = Wire::new();
        wire.client_sent(&startup);
        wire.server_sent(&message(b'Z', b"I"));
        wire.take();
        wire.client_sent(&begin);
        wire.server_sent(&[message(b'C', b"BEGIN\0"), message(b'Z', b"T")].concat());
        for byte in &pipelined {
            wire.client_sent(&[*byte]);
        }
        let reply = [message(b'D', &[b'Z'; 300]), message(b'Z', b"I")].concat();
        for byte in &reply {
            wire.server_sent(&[*byte]);
        }
        let expected = Seen { requests: 2, replies: 2, commits: 1, turns: 2 };
        assert_eq!(wire.take(), expected);
    }
}
