//! Reads a request: the part of HTTP/1.1 that a scraper needs, within limits of time and length.

use std::io;
use std::net::IpAddr;
use std::time::Instant;

use crate::http::{PATIENCE, Stream};

const REQUEST_BYTES_MAX: usize = 8 << 10;
pub(crate) const HEADERS_MAX: usize = 64;

/// The request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Metrics(Form),
    Dump,
    Status,
    /// The table for `top`.
    Now,
    /// The guard's advices and episodes.
    Guard,
    /// End the guard's limit of this episode, or each limit.
    Release(Option<u64>),
}

/// The format of metrics, chosen by the header `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// With native histograms.
    Protobuf,
    /// With exemplars.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which every scraper reads; it has no exemplars.
    Plain,
}

/// The kind of client, which decides what it can request.
#[derive(Clone, Debug)]
pub(crate) enum Asker {
    /// The owner of the Unix socket.
    Owner,
    /// Any user of this machine.
    Local,
    /// A client on another machine, which must send this token.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TLS clients send a token"))]
    Remote(String),
}

pub(crate) type Question = Result<Asked, (u16, &'static str)>;

pub(crate) fn question(stream: &mut impl Stream, asker: &Asker) -> io::Result<Question> {
    stream.until(Instant::now() + PATIENCE);
    let mut held = Vec::new();
    let mut buffer = [0_u8; 1024];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        held.extend_from_slice(&buffer[..count]);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&held) {
            Ok(httparse::Status::Complete(_)) => return Ok(understand(&request, asker)),
            Ok(httparse::Status::Partial) if held.len() < REQUEST_BYTES_MAX => {}
            Ok(httparse::Status::Partial) => return Ok(Err((400, "the request is too long"))),
            Err(_) => return Ok(Err((400, "this is not an HTTP/1.1 request"))),
        }
    }
}

fn understand(request: &httparse::Request<'_, '_>, asker: &Asker) -> Question {
    let header = |name: &str| {
        let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| header.value)
    };
    if let Asker::Remote(token) = asker
        && !is_token(token, header("authorization"))
    {
        return Err((401, "send the token of metrics.token_file: Authorization: Bearer TOKEN"));
    }
    if matches!(asker, Asker::Local) && !header("host").is_none_or(is_local_host) {
        return Err((403, "the header Host must be an address, localhost, or the name of this machine"));
    }
    let accept = header("accept").map(String::from_utf8_lossy).unwrap_or_default();
    let path = request.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    match (request.method.unwrap_or_default(), path) {
        ("GET", "/metrics") => Ok(Asked::Metrics(form(&accept))),
        ("GET", "/status") => Ok(Asked::Status),
        ("GET", "/now") => Ok(Asked::Now),
        ("POST", "/dump") => Ok(Asked::Dump),
        ("GET" | "POST", path) if path == "/guard" || path.starts_with("/guard/") => of_guard(request, path),
        (_, "/metrics" | "/status" | "/now" | "/dump") => Err((405, "GET /metrics, GET /status, GET /now, POST /dump")),
        _ => Err((404, "the paths are /metrics, /status, /now and /dump")),
    }
}

/// Requests about the guard.
fn of_guard(request: &httparse::Request<'_, '_>, path: &str) -> Question {
    match (request.method.unwrap_or_default(), path.strip_prefix("/guard/release/")) {
        ("GET", None) if path == "/guard" => Ok(Asked::Guard),
        ("POST", Some("all")) => Ok(Asked::Release(None)),
        ("POST", Some(id)) => match id.parse() {
            Ok(id) => Ok(Asked::Release(Some(id))),
            Err(_) => Err((404, "give the number of an advice")),
        },
        _ => Err((405, "GET /guard, POST /guard/release/ID, POST /guard/release/all")),
    }
}

/// Whether the header `Host` names this machine. A page of another site can resolve its own name to loopback (DNS
/// rebinding) and would then read the answer.
fn is_local_host(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host).map(str::trim) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let own = rustix::system::uname();
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.eq_ignore_ascii_case(&own.nodename().to_string_lossy())
}

fn form(accept: &str) -> Form {
    if accept.contains("io.prometheus.client.MetricFamily") {
        Form::Protobuf
    } else if accept.contains("application/openmetrics-text") {
        Form::OpenMetrics
    } else {
        Form::Plain
    }
}

/// Compares in constant time: a nearly right guess takes as long as a wrong one.
fn is_token(token: &str, header: Option<&[u8]>) -> bool {
    let given = header.and_then(|header| header.strip_prefix(b"Bearer ")).unwrap_or_default();
    let differs =
        token.bytes().zip(given.iter().chain(std::iter::repeat(&0))).fold(0, |sum, (one, other)| sum | (one ^ other));
    given.len() == token.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::{Form, form, is_local_host, is_token};

    #[test]
    fn the_header_accept_chooses_the_format() {
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,\
                          application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3";
        assert_eq!(form(prometheus), Form::Protobuf);
        assert_eq!(form("application/openmetrics-text;version=1.0.0,*/*;q=0.1"), Form::OpenMetrics);
        assert_eq!((form("*/*"), form("")), (Form::Plain, Form::Plain));
    }

    /// S11: the Host header names the site whose page sent the request.
    #[test]
    fn s11_the_name_of_another_site_is_refused() {
        let own = rustix::system::uname();
        let own = own.nodename().to_bytes();
        for host in [&b"127.0.0.1:9177"[..], b"[::1]:9177", b"localhost", b"localhost:9177", b"10.0.0.7", own] {
            assert!(is_local_host(host), "{}", String::from_utf8_lossy(host));
        }
        for host in [
            &b"evil.example"[..],
            b"evil.example:9177",
            b"127.0.0.1.evil.example",
            b"localhost.evil.example",
            b"",
            b"\xff",
        ] {
            assert!(!is_local_host(host), "{}", String::from_utf8_lossy(host));
        }
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = "0123456789abcdef";
        assert!(is_token(token, Some(b"Bearer 0123456789abcdef")));
        for wrong in [&b""[..], b"Bearer ", b"Bearer 0123456789abcde", b"Bearer 0123456789abcdefg", b"0123456789abcdef"]
        {
            assert!(!is_token(token, Some(wrong)), "{}", String::from_utf8_lossy(wrong));
        }
        assert!(!is_token(token, None));
    }
}
