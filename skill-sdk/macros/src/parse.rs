//! Reads an `impl` block as far as a skill needs it: the heads of its functions. What is in them, and
//! what is no function, goes through as it stands.
//!
//! By hand, since syn's own parser of functions is a feature that nothing else in a plugin's build
//! needs, and that takes longer to compile than all of this.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, Generics, Ident, Result, ReturnType, Token, Type, Visibility, WhereClause,
};
use syn::{braced, parenthesized};

/// An `impl` block of a type.
pub(crate) struct ImplBlock {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) self_type: Type,
    pub(crate) items: Vec<Item>,
}

pub(crate) enum Item {
    Function(Box<MethodItem>),
    Other(TokenStream),
}

pub(crate) struct MethodItem {
    pub(crate) attributes: Vec<Attribute>,
    /// Tokens before `fn`: visibility, `const`, `async` and the like.
    modifiers: TokenStream,
    pub(crate) is_async: Option<Token![async]>,
    pub(crate) name: Ident,
    pub(crate) generics: Generics,
    pub(crate) receiver: Option<SelfParameter>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) output: ReturnType,
    bounds: Option<WhereClause>,
    body: TokenTree,
}

pub(crate) struct SelfParameter {
    pub(crate) tokens: TokenStream,
    /// Whether the receiver is `&self`.
    pub(crate) is_shared: bool,
}

pub(crate) struct Parameter {
    pub(crate) attributes: Vec<Attribute>,
    /// Tokens before the colon.
    pub(crate) pattern: TokenStream,
    /// The pattern, if it is a plain name.
    pub(crate) name: Option<Ident>,
    pub(crate) of: Type,
}

impl Parse for ImplBlock {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = Attribute::parse_outer(input)?;
        if !input.peek(Token![impl]) {
            return Err(input.error("`#[skill]` stands above an `impl` block of a type"));
        }
        let start: Token![impl] = input.parse()?;
        if input.peek(Token![<]) {
            return Err(Error::new(
                start.span(),
                "a skill is one type: an `impl` with parameters cannot be one",
            ));
        }
        let of: Type = input.parse()?;
        if input.peek(Token![for]) {
            return Err(Error::new(
                of.span(),
                "`#[skill]` stands above the `impl` of a type itself, not of a trait for it",
            ));
        }
        let content;
        braced!(content in input);
        let mut items = Vec::new();
        while !content.is_empty() {
            items.push(content.parse()?);
        }
        Ok(Self {
            attributes,
            self_type: of,
            items,
        })
    }
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let ahead = input.fork();
        Attribute::parse_outer(&ahead)?;
        ahead.parse::<Visibility>()?;
        while qualifier(&ahead)?.is_some() {}
        match ahead.peek(Token![fn]) {
            true => Ok(Self::Function(Box::new(input.parse()?))),
            false => parse_other_item(input).map(Self::Other),
        }
    }
}

/// One word before `fn`, such as `async`. `const NAME` is none.
fn qualifier(input: ParseStream<'_>) -> Result<Option<TokenStream>> {
    if input.peek(Token![const])
        && !input.peek2(Token![fn])
        && !input.peek2(Token![async])
        && !input.peek2(Token![unsafe])
        && !input.peek2(Token![extern])
    {
        return Ok(None);
    }
    if input.peek(Token![extern]) {
        let word: Token![extern] = input.parse()?;
        let abi: Option<syn::LitStr> = input.parse()?;
        return Ok(Some(quote!(#word #abi)));
    }
    let is_word =
        input.peek(Token![const]) || input.peek(Token![async]) || input.peek(Token![unsafe]);
    match is_word {
        true => Ok(Some(input.parse::<TokenTree>()?.to_token_stream())),
        false => Ok(None),
    }
}

/// An item that is no function: to its semicolon, or to the braces of a macro.
fn parse_other_item(input: ParseStream<'_>) -> Result<TokenStream> {
    let mut tokens = TokenStream::new();
    let mut is_macro = false;
    while !input.is_empty() {
        let token: TokenTree = input.parse()?;
        let (is_end, is_mark) = match &token {
            TokenTree::Punct(punct) => (punct.as_char() == ';', punct.as_char() == '!'),
            TokenTree::Group(group) => (is_macro && group.delimiter() == Delimiter::Brace, false),
            _ => (false, false),
        };
        is_macro = is_mark;
        tokens.extend([token]);
        if is_end {
            break;
        }
    }
    Ok(tokens)
}

impl Parse for MethodItem {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = Attribute::parse_outer(input)?;
        let mut before = input.parse::<Visibility>()?.into_token_stream();
        let mut is_async = None;
        loop {
            if input.peek(Token![async]) {
                is_async = Some(input.fork().parse()?);
            }
            let Some(word) = qualifier(input)? else { break };
            before.extend(word);
        }
        input.parse::<Token![fn]>()?;
        let name = input.parse()?;
        let mut generics: Generics = input.parse()?;
        let content;
        parenthesized!(content in input);
        let receiver = match is_receiver(&content) {
            true => Some(content.parse()?),
            false => None,
        };
        let parameters = Punctuated::<Parameter, Token![,]>::parse_terminated(&content)?;
        let output = input.parse()?;
        let bounds = match input.peek(Token![where]) {
            true => Some(input.parse()?),
            false => None,
        };
        generics.where_clause = None;
        Ok(Self {
            attributes,
            modifiers: before,
            is_async,
            name,
            generics,
            receiver,
            parameters: parameters.into_iter().collect(),
            output,
            bounds,
            body: input.parse()?,
        })
    }
}

fn is_receiver(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let _ = Attribute::parse_outer(&ahead);
    let _ = ahead.parse::<Option<Token![&]>>();
    let _ = ahead.parse::<Option<syn::Lifetime>>();
    let _ = ahead.parse::<Option<Token![mut]>>();
    ahead.peek(Token![self])
}

impl Parse for SelfParameter {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut tokens = TokenStream::new();
        let mut words = Vec::new();
        while !input.is_empty() && !input.peek(Token![,]) {
            let token: TokenTree = input.parse()?;
            words.push(token.to_string());
            tokens.extend([token]);
        }
        input.parse::<Option<Token![,]>>()?;
        Ok(Self {
            tokens,
            is_shared: words == ["&", "self"],
        })
    }
}

impl Parse for Parameter {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = Attribute::parse_outer(input)?;
        let mut pattern = TokenStream::new();
        let mut names = Vec::new();
        while !input.peek(Token![:]) || input.peek(Token![::]) {
            if input.is_empty() {
                return Err(input.error("expected `name: Type`"));
            }
            let token: TokenTree = input.parse()?;
            match &token {
                TokenTree::Ident(ident) if ident == "mut" => {}
                TokenTree::Ident(ident) => names.push(Some(ident.clone())),
                _ => names.push(None),
            }
            pattern.extend([token]);
        }
        input.parse::<Token![:]>()?;
        let name = match &names[..] {
            [Some(name)] => Some(name.clone()),
            _ => None,
        };
        Ok(Self {
            attributes,
            pattern,
            name,
            of: input.parse()?,
        })
    }
}

impl ToTokens for MethodItem {
    /// The function as it stands, without what is the attribute's.
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self {
            attributes,
            modifiers: before,
            name,
            generics,
            output,
            bounds,
            body,
            ..
        } = self;
        let receiver = self.receiver.iter().map(|receiver| &receiver.tokens);
        let parameters = self.parameters.iter().map(|parameter| {
            let Parameter { pattern, of, .. } = parameter;
            quote!(#pattern: #of)
        });
        let all = receiver.cloned().chain(parameters);
        tokens.extend(quote! {
            #(#attributes)* #before fn #name #generics (#(#all),*) #output #bounds #body
        });
    }
}
