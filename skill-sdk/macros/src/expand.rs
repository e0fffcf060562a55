//! From an `impl` block to the same block and a function beside it that builds the skill.
//!
//! What is wrong is told where it stands, all of it at once, and the block is there all the same: one
//! mistake is one message.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Ident, LitStr, Result, ReturnType, Type};

use crate::marks::{self, Mark, SkillOptions, ToolMark};
use crate::parse::{ImplBlock, Item, MethodItem, Parameter};

/// The attribute's work.
pub(crate) fn expand(options: TokenStream, block: &TokenStream) -> TokenStream {
    let mut block: ImplBlock = match syn::parse2(block.clone()) {
        Ok(parsed) => parsed,
        // Nothing is left out because of a mistake of the attribute's.
        Err(error) => {
            let error = error.to_compile_error();
            return quote!(#block #error);
        }
    };
    let builder = builder(options, &mut block);
    let ImplBlock {
        attributes,
        self_type: of,
        items,
    } = &block;
    let items = items.iter().map(|item| match item {
        Item::Function(function) => function.to_token_stream(),
        Item::Other(tokens) => tokens.clone(),
    });
    let builder = builder.unwrap_or_else(Error::into_compile_error);
    quote! {
        #(#attributes)*
        impl #of { #(#items)* }

        #builder
    }
}

/// All mistakes of the input, reported together.
#[derive(Default)]
struct CollectedErrors(Option<Error>);

impl CollectedErrors {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The value, or nothing and a mistake more.
    fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }
}

/// The `impl` with the function that builds the skill. Takes what is the attribute's out of the block.
fn builder(options: TokenStream, block: &mut ImplBlock) -> Result<TokenStream> {
    let mut mistakes = CollectedErrors::default();
    let options: SkillOptions = mistakes.take(syn::parse2(options)).unwrap_or_default();
    let description = marks::docs(&block.attributes);
    if description.is_empty() {
        mistakes.add(Error::new(
            block.self_type.span(),
            "say what the skill is for in a doc comment above the `impl`: models and people read it",
        ));
    }
    let mut registered = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut create: Option<TokenStream> = None;
    let mut is_marked = false;
    for item in &mut block.items {
        let Item::Function(function) = item else {
            continue;
        };
        let mark = mistakes.take(marks::take(&mut function.attributes));
        let part = match mark.flatten() {
            None => Ok(None),
            Some(Mark::Create(word)) => {
                let again = create.is_some();
                creation(function).and_then(|made| match again {
                    true => Err(Error::new(word.span(), "there is a `#[create]` already")),
                    false => {
                        create = Some(made);
                        Ok(None)
                    }
                })
            }
            Some(Mark::Tool(tool)) => tool_of(function, &tool).map(Some),
            Some(Mark::Callback(word, words)) => callback_of(function, &word, words).map(Some),
        };
        is_marked |= !matches!(part, Ok(None));
        // Its parameters' attributes are gone from here on.
        if let Some(Some((name, part))) = mistakes.take(part) {
            // The same function twice, each under a condition of its own, may be one tool.
            let is_conditional = function
                .attributes
                .iter()
                .any(|it| marks::is_condition(&it));
            match names.contains(&name) && !is_conditional {
                true => mistakes.add(Error::new(
                    function.name.span(),
                    format!("there is a `{name}` already"),
                )),
                false => registered.push(part),
            }
            names.push(name);
        }
    }
    if !is_marked {
        mistakes.add(Error::new(
            block.self_type.span(),
            "no function of it is marked `#[tool]`, `#[execute]`, `#[read]`, `#[write]` or `#[modify]`",
        ));
    }
    if let CollectedErrors(Some(error)) = mistakes {
        return Err(error);
    }
    Ok(skill_function(
        &block.self_type,
        &options,
        &description,
        create,
        &registered,
    ))
}

/// The function that builds the skill.
fn skill_function(
    of: &Type,
    options: &SkillOptions,
    description: &str,
    create: Option<TokenStream>,
    registered: &[TokenStream],
) -> TokenStream {
    let name = match &options.name {
        Some(name) => name.to_token_stream(),
        None => quote!(::core::env!("CARGO_PKG_NAME")),
    };
    let shared = options.shared.as_ref().map(|shared| quote!(.#shared()));
    let create = create.unwrap_or_else(|| {
        quote_spanned!(of.span()=> |_setup: &::conjure_skill_sdk::Setup| {
            ::core::result::Result::Ok(<Self as ::core::default::Default>::default())
        })
    });
    let kept = quote_spanned!(of.span()=> ::conjure_skill_sdk::export::SkillState::<Self>::new());
    quote! {
        impl #of {
            #[doc = "The skill, as its attribute says it."]
            pub fn skill() -> ::conjure_skill_sdk::Skill {
                let state = #kept;
                let skill = ::conjure_skill_sdk::Skill::new(#name, #description) #shared;
                let skill = state.made_by(skill, #create);
                #(#registered)*
                skill
            }
        }
    }
}

/// Conditions under which a function is there, and so under which it is registered.
fn conditions(function: &MethodItem) -> Vec<&Attribute> {
    function
        .attributes
        .iter()
        .filter(marks::is_condition)
        .collect()
}

/// A function that makes the state: of nothing or of a `&Setup`, and either the type or a result of it.
fn creation(function: &MethodItem) -> Result<TokenStream> {
    if let Some(receiver) = &function.receiver {
        return Err(Error::new(
            receiver.tokens.span(),
            "what makes the state has none yet: take nothing, or a `&Setup`",
        ));
    }
    ordinary(function)?;
    let name = &function.name;
    let setup = match &function.parameters[..] {
        [] => quote!(),
        [_] => quote!(setup),
        [_, more, ..] => {
            return Err(Error::new(
                more.pattern.span(),
                "what makes the state takes nothing, or a `&Setup`",
            ));
        }
    };
    let span = match &function.output {
        ReturnType::Default => name.span(),
        ReturnType::Type(_, of) => of.span(),
    };
    let span = span.resolved_at(Span::call_site());
    let made = quote_spanned!(span=> ::conjure_skill_sdk::export::IntoState::into_state(made));
    Ok(quote! {
        |setup: &::conjure_skill_sdk::Setup| {
            let _ = setup;
            let made = Self::#name(#setup);
            #made
        }
    })
}

/// Refuses forms that no marked function may have.
fn ordinary(function: &MethodItem) -> Result<()> {
    if let Some(word) = function.is_async {
        return Err(Error::new(
            word.span,
            "a skill's functions are ordinary ones, each call has a thread: leave `async` out",
        ));
    }
    if let Some(first) = function.generics.params.first() {
        return Err(Error::new(
            first.span(),
            "models call one function: leave its type parameters out",
        ));
    }
    Ok(())
}

/// What every function takes that a model calls.
fn check_callable(function: &MethodItem) -> Result<()> {
    ordinary(function)?;
    match &function.receiver {
        Some(receiver) if receiver.is_shared => Ok(()),
        Some(receiver) => Err(Error::new(
            receiver.tokens.span(),
            "take `&self`: calls may run at the same time, so what changes belongs into a `Mutex`",
        )),
        None => Err(Error::new(
            function.name.span(),
            "take `&self` first: it is the session's state",
        )),
    }
}

/// Whether a parameter is the context of the call.
fn is_context(parameter: &Parameter) -> bool {
    let Type::Reference(reference) = &parameter.of else {
        return false;
    };
    let Type::Path(path) = &*reference.elem else {
        return false;
    };
    path.path
        .segments
        .last()
        .is_some_and(|last| last.ident == "Cx")
}

/// The context, where a function takes it, and the rest.
fn parameters(function: &mut MethodItem) -> (TokenStream, &mut [Parameter]) {
    let name = function
        .parameters
        .first()
        .filter(|first| is_context(first));
    match name.is_some() {
        true => (
            quote!(cx,),
            function.parameters.get_mut(1..).unwrap_or_default(),
        ),
        false => (quote!(), &mut function.parameters),
    }
}

/// The registration of a callback of the skill's own grammar, and its name.
fn callback_of(
    function: &mut MethodItem,
    word: &Ident,
    words: Option<LitStr>,
) -> Result<(String, TokenStream)> {
    check_callable(function)?;
    let said = match words {
        Some(words) => words.value(),
        None => marks::docs(&function.attributes),
    };
    if said.is_empty() {
        return Err(Error::new(
            word.span(),
            format!("say what it takes, as in `#[{word}(\"…\")]`: models read it"),
        ));
    }
    let (name, output) = (function.name.clone(), function.output.clone());
    let (context, rest) = parameters(function);
    let [request] = rest else {
        return Err(Error::new(
            name.span(),
            format!(
                "`{word}` takes its request: `request: {}`",
                capitalised(&word.to_string())
            ),
        ));
    };
    let of = request.of.clone();
    let call = quote!(state.#name(#context request));
    let run = run(&call, &output, &name);
    let conditions = conditions(function);
    let part = quote! {
        #(#conditions)*
        let skill = {
            let state = state.clone();
            skill.#word(#said, move |cx: &::conjure_skill_sdk::Cx, request: #of| {
                let _ = cx;
                #run
            })
        };
    };
    Ok((word.to_string(), part))
}

/// A call of the function, and what the model gets of it.
fn run(call: &TokenStream, output: &ReturnType, name: &Ident) -> TokenStream {
    let span = match output {
        ReturnType::Default => name.span(),
        ReturnType::Type(_, of) => of.span(),
    };
    let span = span.resolved_at(Span::call_site());
    let result =
        quote_spanned!(span=> ::conjure_skill_sdk::IntoToolResult::into_tool_result(returned));
    quote! {
        state.with(|state| {
            let returned = #call;
            #result
        })
    }
}

/// The registration of a tool, and its name.
fn tool_of(function: &mut MethodItem, tool: &ToolMark) -> Result<(String, TokenStream)> {
    check_callable(function)?;
    let own = function.name.to_string();
    let own = own.strip_prefix("r#").unwrap_or(&own).to_owned();
    let (public, span) = match &tool.name {
        Some(name) => (name.value(), name.span()),
        None => (own, function.name.span()),
    };
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if public.is_empty() || !public.chars().all(is_legal) {
        return Err(Error::new(
            span,
            "a tool's name has ASCII letters, digits, `_` and `-`: give it one with \
             `#[tool(name = \"…\")]`",
        ));
    }
    let description = marks::docs(&function.attributes);
    if description.is_empty() {
        return Err(Error::new(
            function.name.span(),
            "say what it does in a doc comment: models choose tools by it",
        ));
    }
    let (name, output) = (function.name.clone(), function.output.clone());
    let (context, rest) = parameters(function);
    let (declared, given) = arguments(&name, rest)?;
    let call = quote!(state.#name(#context #given));
    let run = run(&call, &output, &name);
    let options = &tool.options;
    let conditions = conditions(function);
    let (of, declaration) = declared;
    let part = quote! {
        #(#conditions)*
        let skill = {
            #declaration
            let state = state.clone();
            let options = ::conjure_skill_sdk::ToolOptions::new() #(#options)*;
            skill.tool_with(
                #public,
                #description,
                options,
                move |cx: &::conjure_skill_sdk::Cx, arguments: #of| {
                    let _ = (cx, &arguments);
                    #run
                },
            )
        };
    };
    Ok((public, part))
}

/// The type of a tool's arguments with its declaration where it has none, and how the function gets
/// them.
type ArgumentsCode = ((TokenStream, TokenStream), TokenStream);

fn arguments(name: &Ident, parameters: &mut [Parameter]) -> Result<ArgumentsCode> {
    if let [only] = parameters {
        let whole = |attribute: &Attribute| attribute.path().is_ident("arguments");
        if only.attributes.iter().any(whole) {
            let of = only.of.to_token_stream();
            return Ok(((of, TokenStream::new()), quote!(arguments)));
        }
    }
    let (mut fields, mut names) = (Vec::new(), Vec::new());
    for parameter in parameters {
        let (field, name) = field(parameter)?;
        fields.push(field);
        names.push(name);
    }
    let of = format_ident!(
        "{}Arguments",
        capitalised(&name.to_string()),
        span = Span::mixed_site()
    );
    let declaration = quote! {
        #[derive(
            ::conjure_skill_sdk::export::serde::Deserialize,
            ::conjure_skill_sdk::export::schemars::JsonSchema,
        )]
        #[serde(crate = "::conjure_skill_sdk::export::serde")]
        #[schemars(crate = "::conjure_skill_sdk::export::schemars")]
        struct #of { #(#fields),* }
    };
    Ok(((quote!(#of), declaration), quote!(#(arguments.#names),*)))
}

/// A parameter as a field of the arguments, which has its docs and what serde and schemars read.
fn field(parameter: &Parameter) -> Result<(TokenStream, &Ident)> {
    let Some(name) = &parameter.name else {
        return Err(Error::new(
            parameter.pattern.span(),
            "an argument has a name, which the model reads: write `name: Type`",
        ));
    };
    if let Type::Reference(reference) = &parameter.of {
        return Err(Error::new(
            reference.span(),
            "an argument is owned, such as a `String`; the context `cx: &Cx` comes right after `&self`",
        ));
    }
    for attribute in &parameter.attributes {
        let path = attribute.path();
        if path.is_ident("arguments") {
            return Err(Error::new(
                attribute.span(),
                "`#[arguments]` is for the only parameter of a tool, whose type is all of its arguments",
            ));
        }
        if !["doc", "serde", "schemars"]
            .iter()
            .any(|known| path.is_ident(known))
        {
            return Err(Error::new(
                attribute.span(),
                "an argument has doc comments, `#[serde(…)]` and `#[schemars(…)]`",
            ));
        }
    }
    let (attributes, of) = (&parameter.attributes, &parameter.of);
    Ok((quote!(#(#attributes)* #name: #of), name))
}

/// `top_keys` as `TopKeys`.
fn capitalised(name: &str) -> String {
    let words = name.trim_start_matches("r#").split('_');
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    words.map(word).collect()
}

#[cfg(test)]
mod tests;
