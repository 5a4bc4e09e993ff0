//! Removes secrets from command lines before they are recorded or printed.
//!
//! Patterns cannot find every secret. They cover the usual names of secrets, URLs that contain them, and programs that
//! take them after a one-letter flag.

/// Replacement of a secret.
pub const REDACTED: &str = "[redacted]";

/// Parts of names, in lower case, whose values are secret.
const SECRET: [&str; 10] =
    ["password", "passwd", "passphrase", "pwd", "token", "secret", "key", "credential", "authorization", "cookie"];

/// One-letter flags with a password, attached or as the next word: (prefix of the program's name, flag).
const SHORT: [(&str, &str); 10] = [
    ("mysql", "-p"),
    ("mariadb", "-p"),
    ("mongo", "-p"),
    ("sshpass", "-p"),
    ("redis-cli", "-a"),
    ("curl", "-u"),
    ("curl", "-U"),
    ("ldap", "-w"),
    ("sqlcmd", "-P"),
    ("7z", "-p"),
];

/// A user name in a URL that is longer than this is taken as a token.
const URL_USER_BYTES_MAX: usize = 16;

/// The words of a command, with its secrets replaced.
#[must_use]
pub fn words(words: &[String]) -> Vec<String> {
    let mut redacted: Vec<String> = Vec::with_capacity(words.len());
    let mut programs: Vec<&str> = Vec::new();
    let mut expected = false;
    let mut before = "";
    for word in words {
        let program = word.rsplit('/').next().unwrap_or(word);
        let is_flag = word.starts_with('-');
        let short = SHORT
            .iter()
            .filter(|(program, _)| programs.iter().any(|known| known.starts_with(program)))
            .find_map(|(_, flag)| word.strip_prefix(flag).map(|rest| (*flag, rest)));
        let (text, expects) = match short {
            // Even if the word begins with a hyphen, because a password may.
            _ if expected && !(is_flag && word.len() > 2) => (REDACTED.to_owned(), false),
            Some((_, "")) => (word.clone(), true),
            Some((flag, _)) => (format!("{flag}{REDACTED}"), false),
            None if is_flag && !word.contains(['=', ' ']) => (word.clone(), is_secret(word)),
            None if before.starts_with('-') && before.ends_with('c') && programs.iter().any(is_shell) => {
                (line(word), false)
            }
            None => (within(word), false),
        };
        redacted.push(text);
        expected = expects;
        before = word;
        if !is_flag {
            programs.push(program);
        }
    }
    redacted
}

/// Redacts a word that may be `NAME=VALUE`, `Name: value`, a URL, or a whole command for a shell.
fn within(word: &str) -> String {
    if let Some((name, separator)) = name_of(word)
        && is_secret(name)
    {
        return format!("{name}{separator}{REDACTED}");
    }
    if word.contains(char::is_whitespace) {
        return line(word);
    }
    url(&parameters(word))
}

/// Whether the program takes a whole command after `-c`.
fn is_shell(program: &&str) -> bool {
    matches!(*program, "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "su" | "runuser")
}

/// The name before the first `=` or `:`, if it has the form of a name.
fn name_of(word: &str) -> Option<(&str, char)> {
    let at = word.find(['=', ':'])?;
    let (name, rest) = word.split_at(at);
    let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    (named && !rest.starts_with("://")).then(|| (name, if rest.starts_with('=') { '=' } else { ':' }))
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// Redacts a shell command line word by word, and keeps the white space.
#[must_use]
pub fn line(text: &str) -> String {
    let mut parts: Vec<(String, &str)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let space = rest.len() - rest.trim_start().len();
        let (before, behind) = rest.split_at(space);
        let (word, after) = behind.split_at(word_bytes(behind));
        parts.push((word.to_owned(), before));
        rest = after;
    }
    let plain: Vec<String> = parts.iter().map(|(word, _)| unquoted(word)).collect();
    let hidden = words(&plain);
    let mut shown = String::with_capacity(text.len());
    for (((word, before), plain), hidden) in parts.iter().zip(&plain).zip(&hidden) {
        shown.push_str(before);
        // Keep the original spelling with its quotes if no part is secret.
        shown.push_str(if plain == hidden { word } else { hidden });
    }
    shown
}

/// Bytes before the first white space outside quotes.
fn word_bytes(text: &str) -> usize {
    let mut quote = None;
    let end = text.char_indices().find(|(_, c)| {
        match quote {
            Some(open) if *c == open => quote = None,
            None if matches!(c, '\'' | '"') => quote = Some(*c),
            _ => {}
        }
        quote.is_none() && c.is_whitespace()
    });
    end.map_or(text.len(), |(at, _)| at)
}

fn unquoted(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '\'' | '"')).collect()
}

/// Redacts `?name=value&name=value`, `name=value;name=value`, `name=value,name=value`.
fn parameters(word: &str) -> String {
    let separator = |c: char| matches!(c, '?' | '&' | ';' | ',' | '#');
    let mut shown = String::with_capacity(word.len());
    for part in word.split_inclusive(separator) {
        let (body, end) = match part.char_indices().next_back().filter(|(_, c)| separator(*c)) {
            Some((at, _)) => part.split_at(at),
            None => (part, ""),
        };
        match body.split_once('=').filter(|(name, _)| is_secret(name) && !name.contains("://")) {
            Some((name, _)) => shown.push_str(&format!("{name}={REDACTED}")),
            None => shown.push_str(body),
        }
        shown.push_str(end);
    }
    shown
}

/// Redacts `scheme://user:password@host`, up to the last @ before the path, because a password may contain an @.
fn url(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let Some((user, _)) = authority.rsplit_once('@') else { return word.to_owned() };
    let after = rest.get(user.len()..).unwrap_or_default();
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}://{name}:{REDACTED}{after}"),
        None if user.len() > URL_USER_BYTES_MAX => format!("{scheme}://{REDACTED}{after}"),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{line, words};
    use proptest::prelude::{prop, proptest};

    fn of(text: &str) -> String {
        words(&text.split('|').map(str::to_owned).collect::<Vec<String>>()).join("|")
    }

    #[test]
    fn values_of_secret_names_are_hidden() {
        assert_eq!(of("db|--token=s3cret|--verbose"), "db|--token=[redacted]|--verbose");
        assert_eq!(of("db|--token|s3cret|--verbose"), "db|--token|[redacted]|--verbose");
        assert_eq!(of("env|PGPASSWORD=s3cret|psql"), "env|PGPASSWORD=[redacted]|psql");
        assert_eq!(of("env|MYSQL_PWD=s3=cret,x|mysql"), "env|MYSQL_PWD=[redacted]|mysql");
        assert_eq!(of("x|--API-KEY|s3cret"), "x|--API-KEY|[redacted]");
        assert_eq!(of("x|aws_secret_access_key=s3|b=1"), "x|aws_secret_access_key=[redacted]|b=1");
        assert_eq!(of("curl|-H|Authorization: Bearer s3cret"), "curl|-H|Authorization:[redacted]");
        assert_eq!(of("curl|-H|X-Api-Key:s3cret"), "curl|-H|X-Api-Key:[redacted]");
    }

    #[test]
    fn a_flag_without_a_secret_hides_nothing() {
        assert_eq!(of("psql|--password|--host=db"), "psql|--password|--host=db");
        assert_eq!(of("x|--token"), "x|--token");
        assert_eq!(of("fio|--rw=write|--bs=4k|--name=a"), "fio|--rw=write|--bs=4k|--name=a");
        assert_eq!(of("ls|-p|dir"), "ls|-p|dir", "-p of ls takes no password");
    }

    #[test]
    fn passwords_after_one_letter_flags_are_hidden_for_known_programs() {
        assert_eq!(of("/usr/bin/mysqldump|-ps3cret|db"), "/usr/bin/mysqldump|-p[redacted]|db");
        assert_eq!(of("redis-cli|-a|s3cret|ping"), "redis-cli|-a|[redacted]|ping");
        assert_eq!(of("nice|sshpass|-p|s3cret|ssh|host"), "nice|sshpass|-p|[redacted]|ssh|host");
        assert_eq!(of("curl|-u|me:s3cret|host"), "curl|-u|[redacted]|host");
    }

    #[test]
    fn urls_keep_the_user_and_lose_the_password() {
        assert_eq!(of("x|postgres://me:s3cret@db:5432/a"), "x|postgres://me:[redacted]@db:5432/a");
        assert_eq!(of("x|https://me:s3@cret@h/p@q"), "x|https://me:[redacted]@h/p@q");
        assert_eq!(of("x|https://ghp_0123456789abcdef0123@h/"), "x|https://[redacted]@h/");
        assert_eq!(of("x|ssh://git@h/r"), "x|ssh://git@h/r");
        assert_eq!(of("x|http://h/?a=1&token=s3cret&b=2"), "x|http://h/?a=1&token=[redacted]&b=2");
        assert_eq!(of("x|--url=redis://:s3cret@h"), "x|--url=redis://:[redacted]@h");
    }

    #[test]
    fn shell_commands_are_split_as_the_shell_splits_them() {
        assert_eq!(
            of("sh|-c|PGPASSWORD='s3 cret' psql  -c 'select 1'"),
            "sh|-c|PGPASSWORD=[redacted] psql  -c 'select 1'"
        );
        assert_eq!(of("sh|-c|a; mysql -ps3cret -e \"x y\""), "sh|-c|a; mysql -p[redacted] -e \"x y\"");
        assert_eq!(of("sh|-c|curl \"https://me:s3cret@h\""), "sh|-c|curl https://me:[redacted]@h");
        assert_eq!(line("app --secret 's3 cret' run"), "app --secret [redacted] run");
    }

    proptest! {
        #[test]
        fn secrets_are_hidden_in_any_context(
            before in prop::collection::vec("[a-z/=:@?&'\" -]{0,12}", 0..4),
            name in prop::sample::select(vec!["--token", "PGPASSWORD", "--api-key", "client_secret", "db.password"]),
            after in prop::collection::vec("[a-z=:@ -]{0,12}", 0..3),
        ) {
            let secret = "S3CRET";
            let all: Vec<String> = before.iter().cloned().chain([format!("{name}={secret}")]).chain(after).collect();
            let shown = words(&all).join(" ");
            assert!(!shown.contains(secret), "{shown}");
        }

        #[test]
        fn line_accepts_any_text(text in "\\PC{0,80}") {
            let _ = line(&text);
        }
    }
}
