//! `conjure serve`: the host behind its HTTP API.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_client::{RemoteServer, ServerAnnouncement};
use conjure_config::env;
use conjure_http::{Api, ApiOptions, HttpAccess};
use conjure_http_server::user_token_file;
use conjure_runtime::manager::Manager;
use secrecy::SecretString;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::plugin_args::PluginArgs;
use super::serve_demo;
use super::signals::{Signal, Signals};
use super::tokens;

/// Serves the HTTP API.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure serve
  conjure serve --listen 127.0.0.1:0 --json
  conjure serve --demo                     # with a session that needs no key
  conjure serve --link                     # lets a browser into the server that runs
  conjure serve --listen 0.0.0.0:7420 --token-file tokens --allow-host box.example")]
pub(crate) struct ServeArgs {
    /// The address to listen on; port 0 is any that is free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7420")]
    listen: SocketAddr,
    /// A file of tokens that let clients in, one a line, beside the token of the user who serves,
    /// which is in the file `http-token` of the directory of data. So does `CONJURE_TOKEN`. A token has
    /// 16 characters or more, and nobody else may read or write the file
    #[arg(long, value_name = "FILE")]
    token_file: Vec<PathBuf>,
    /// A variable of the environment that holds a token which lets a client in, of 16 characters or
    /// more
    #[arg(long, value_name = "NAME")]
    token_env: Vec<String>,
    /// A name under which clients reach the server, beside this machine's: a value of `Host`
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// A page that may call the server from a browser, such as `https://app.example:443`: a value
    /// of `Origin`
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// The most connections at the same time
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = at_least_one)]
    max_connections: usize,
    /// Seconds that turns and requests which run have at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    /// Seconds that a request has to arrive: its headers, and its body after them
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    request_timeout: u64,
    /// Print a link that lets a browser into the server that runs, once, and end
    #[arg(long, conflicts_with_all = FOR_A_SERVER)]
    link: bool,
    /// Have a session `demo` ready, in which a script plays the model: for a look at the page without
    /// a key
    #[arg(long, conflicts_with = "link")]
    demo: bool,
    #[command(flatten)]
    plugins: PluginArgs,
}

/// What says how a server is to be, and nothing about one that runs.
const FOR_A_SERVER: [&str; 11] = [
    "listen",
    "token_file",
    "token_env",
    "allow_host",
    "allow_origin",
    "max_connections",
    "grace",
    "request_timeout",
    "plugin",
    "plugin_dir",
    "isolation",
];

/// Prints a link into the server that runs.
async fn link(global: &Global) -> Result<Exit, CliError> {
    let Some(server) = RemoteServer::find(&global.data_dir()) else {
        return Err(CliError::usage("no server runs for this data directory")
            .hint("`conjure serve` starts one and prints a link"));
    };
    server.probe().await?;
    let link = server.browser_link().await;
    let link = link.map_err(CliError::host_from)?;
    if global.json {
        output::json_line(&json!({ "url": link }));
    } else {
        output::line(link);
    }
    Ok(Exit::Success)
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "a number from 1 on".to_owned())
}

pub(crate) async fn run(global: &Global, args: ServeArgs) -> Result<Exit, CliError> {
    if args.link {
        return link(global).await;
    }
    let access = HttpAccess {
        tokens: tokens::with_users(global, args.tokens()?)?,
        hosts: args.allow_host.clone(),
        origins: args.allow_origin.clone(),
    };
    let mut signals = Signals::listen()?;
    let server = signals
        .unless(Box::pin(async {
            let store = global.store().await?;
            if store.is_read_only() {
                return Err(
                    CliError::host("the database is read-only, and a server writes it")
                        .hint(crate::diagnosis::READ_ONLY),
                );
            }
            let auths = global.auths_over(&store);
            let host = args
                .plugins
                .named_host(global)?
                .log(store.clone())
                .auths(auths.clone());
            let host = host.watch(true).build().await?;
            let manager = Manager::start(host, store, Default::default()).await;
            let manager = manager.map_err(CliError::host_from)?;
            if args.demo {
                serve_demo::prepare(&manager, &auths, &global.data_dir()).await?;
            }
            let api = Api {
                manager,
                auths,
                options: args.options(),
                page: Some(Box::new(page)),
                share: Some(share()),
            };
            let listening = api.listen(args.listen, access).await;
            Ok(listening?)
        }))
        .await?;
    let address = server.address();
    let announced = ServerAnnouncement::new(&global.data_dir(), address);
    let announced = announced.map_err(CliError::host_from)?;
    if announced.is_none() {
        output::print_note(
            "Another server runs for this data directory: `conjure run --session` and its like go \
             to that one, and come to this one when that ends.",
        );
    }
    let token_file = user_token_file(&global.data_dir());
    if global.json {
        output::json_line(&json!({ "url": server.url(), "token_file": token_file }));
    } else {
        output::line(format_args!(
            "Serving the page and the API at {}",
            server.url()
        ));
        tokens::print_token_hint(&token_file);
        output::print_note(format_args!(
            "A browser is let in by this link, once, within ten minutes (`conjure serve --link` \
             prints another one): {}",
            server.browser_link()
        ));
        if args.demo {
            output::print_note(format_args!(
                "The session `{name}` needs no key: {}/sessions/{name}",
                server.url(),
                name = serve_demo::NAME
            ));
        }
    }
    let end = CancellationToken::new();
    let serving = Box::pin(server.serve(end.clone()));
    let data_dir = global.data_dir();
    let serving = async {
        tokio::select! {
            () = serving => {}
            () = stay_announced(announced, &data_dir, address) => {}
        }
        Ok(())
    };
    Box::pin(signals.cancelling(&end, serving)).await?;
    Ok(signals.last().map_or(Exit::Success, Signal::exit))
}

/// Keeps a server announced until this is dropped. Where another one is announced, this one takes its
/// place when that is gone, so that verbs find whoever is left.
async fn stay_announced(
    announced: Option<ServerAnnouncement>,
    data_dir: &Path,
    address: SocketAddr,
) {
    let _announced = match announced {
        Some(announced) => announced,
        None => {
            let announced = ServerAnnouncement::announce_when_free(data_dir, address).await;
            output::print_note(
                "The other server is gone: `conjure run --session` and its like come to this one \
                 now.",
            );
            announced
        }
    };
    std::future::pending::<()>().await;
}

/// Makes the file of a thread that is given to others, as the page shows it.
fn share() -> conjure_http::ShareThread {
    Arc::new(|store, thread| {
        Box::pin(async move {
            let label = store.thread(&thread).await?.label;
            Ok(conjure_http::SharedThread {
                name: conjure_page::shared_file_name(&label, &thread),
                html: conjure_page::shared_html(&store, &thread).await?,
            })
        })
    })
}

/// The page, over what the server gives it.
fn page(parts: conjure_http::PageParts) -> conjure_http::BrowserPage {
    let conjure_http::PageParts {
        api,
        manager,
        shutdown: ended,
        follow,
    } = parts;
    conjure_http::BrowserPage {
        router: conjure_page::router(conjure_page::PageServices {
            api,
            manager,
            shutdown: ended,
            follow,
        }),
        problem: Arc::new(|problem, headers| {
            let conjure_http::ShownProblem {
                status,
                kind,
                title,
                detail,
            } = problem;
            conjure_page::problem(*status, kind, title, detail, headers)
        }),
    }
}

impl ServeArgs {
    /// The variables that hold tokens which let clients in.
    pub(crate) fn token_variables(&self) -> &[String] {
        &self.token_env
    }

    fn options(&self) -> ApiOptions {
        let timeout = Duration::from_secs(self.request_timeout);
        ApiOptions {
            max_connections: self.max_connections,
            header_timeout: timeout,
            body_timeout: timeout,
            grace: Duration::from_secs(self.grace),
            ..ApiOptions::default()
        }
    }

    fn tokens(&self) -> Result<Vec<SecretString>, CliError> {
        let mut tokens = tokens::of_files(&self.token_file)?;
        tokens.extend(tokens::of_env(&self.token_env)?);
        tokens.extend(tokens::of_variable(env::TOKEN)?);
        Ok(tokens)
    }
}
