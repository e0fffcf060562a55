//! A log entry in the one form that this skill writes.

use serde::Serialize;

/// Severity of an entry, the least severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum LogSeverity {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl LogSeverity {
    /// All of them, the most severe first.
    pub(crate) const ALL: [Self; 5] = [
        Self::Error,
        Self::Warn,
        Self::Info,
        Self::Debug,
        Self::Trace,
    ];

    /// Reads a level's name in any of its usual spellings.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        const NAMES: [(LogSeverity, &[&str]); 5] = [
            (LogSeverity::Trace, &["trace", "trc", "verbose", "finest"]),
            (LogSeverity::Debug, &["debug", "dbg", "fine"]),
            (LogSeverity::Info, &["info", "inf", "information", "notice"]),
            (LogSeverity::Warn, &["warn", "warning", "wrn"]),
            (
                LogSeverity::Error,
                &[
                    "error",
                    "err",
                    "fatal",
                    "critical",
                    "crit",
                    "severe",
                    "alert",
                    "emerg",
                    "emergency",
                    "panic",
                ],
            ),
        ];
        let is = |spelling: &&str| name.eq_ignore_ascii_case(spelling);
        NAMES
            .iter()
            .find(|(_, spellings)| spellings.iter().any(is))
            .map(|(level, _)| *level)
    }

    /// The level of a syslog severity, 0 to 7.
    pub(crate) fn of_syslog(severity: u64) -> Self {
        match severity {
            0..=3 => Self::Error,
            4 => Self::Warn,
            5 | 6 => Self::Info,
            _ => Self::Debug,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// An entry. The order of the fields is the order in the file that is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct LogEntry {
    /// As the source has it; seconds and milliseconds since 1970 become RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<LogSeverity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// Client of a web server's request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<Box<WebClient>>,
}

/// Client that sent a request to a web server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct WebClient {
    /// An IP address, or a name where the server looks names up.
    pub(crate) address: String,
    /// The page that led there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) referrer: Option<String>,
    /// The program that asked, as it calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
}

impl LogEntry {
    /// Whether it says enough to be one: what happened, or at least when and how bad it was.
    pub(crate) fn is_readable(&self) -> bool {
        self.message.is_some() || (self.timestamp.is_some() && self.level.is_some())
    }

    /// About how many bytes it takes in memory.
    pub(crate) fn size(&self) -> usize {
        let texts = [&self.timestamp, &self.host, &self.service, &self.message];
        let bytes = texts.into_iter().flatten().map(String::len).sum::<usize>();
        let client = self.client.as_deref().map_or(0, WebClient::size);
        bytes + client + size_of::<Self>()
    }
}

impl WebClient {
    fn size(&self) -> usize {
        let more = [&self.referrer, &self.agent];
        let more = more.into_iter().flatten().map(String::len).sum::<usize>();
        self.address.len() + more + size_of::<Self>()
    }
}
