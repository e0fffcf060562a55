//! Operations of the API: their routes, and in tests what they say of themselves. A server has the
//! description as a file, so it makes none and holds none of what that needs.

use axum::Router;
use axum::routing::MethodRouter;

use super::state::App;

/// The operations at one path.
pub(super) struct AtPath {
    pub(super) path: String,
    pub(super) methods: MethodRouter<App>,
    #[cfg(test)]
    pub(super) described: utoipa_axum::router::UtoipaMethodRouter<App>,
}

/// Operations with their paths.
#[derive(Default)]
pub(super) struct Operations {
    router: Router<App>,
    #[cfg(test)]
    described: utoipa_axum::router::OpenApiRouter<App>,
}

impl Operations {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds the operations at one more path: what [`routes`] gives.
    pub(super) fn routes(self, at: AtPath) -> Self {
        Self {
            router: self.router.route(&at.path, at.methods),
            #[cfg(test)]
            described: self.described.routes(at.described),
        }
    }

    /// Adds the operations of another part of the API.
    pub(super) fn merge(self, other: Self) -> Self {
        Self {
            router: self.router.merge(other.router),
            #[cfg(test)]
            described: self.described.merge(other.described),
        }
    }

    /// The routes alone.
    pub(super) fn into_router(self) -> Router<App> {
        self.router
    }

    /// What all of them say of themselves, behind this beginning.
    #[cfg(test)]
    pub(super) fn describe(self, base: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
        let described = utoipa_axum::router::OpenApiRouter::with_openapi(base);
        described.merge(self.described).split_for_parts().1
    }
}

/// The operations at one path, by their handlers: each is marked with `utoipa::path`.
macro_rules! routes {
    ($first:path $(, $more:path)* $(,)?) => {{
        use utoipa_axum::PathItemExt as _;
        let methods = $crate::operations::on_methods!(axum::routing::MethodRouter::new(), $first);
        $(let methods = $crate::operations::on_methods!(methods, $more);)*
        $crate::operations::AtPath {
            path: utoipa_axum::paste! { utoipa_axum::routes!(@path [path()] of $first) },
            methods,
            #[cfg(test)]
            described: utoipa_axum::routes!($first $(, $more)*),
        }
    }};
}

/// A handler for its methods, beside those of others.
macro_rules! on_methods {
    ($router:expr, $handler:path) => {
        utoipa_axum::paste! { utoipa_axum::routes!(@path [methods()] of $handler) }
            .iter()
            .fold($router, |router, method| {
                router.on(method.to_method_filter(), $handler)
            })
    };
}

pub(super) use {on_methods, routes};
