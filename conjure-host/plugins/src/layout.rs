//! Whether a plugin lays out the types of the ABI as this host does.
//!
//! The comparison of `abi_stable` knows one direction: the found types may have more than the
//! expected ones. A third party's plugin is usually the older side, so both directions count
//! here. What a prefix type must at least have is then checked apart: the side that calls may
//! only rely on what the other side's tables hold.

use std::collections::{HashMap, HashSet};

use conjure_abi::RootRef;
use conjure_abi::abi_stable::StableAbi;
use conjure_abi::abi_stable::abi_stability::abi_checking::{
    AbiInstability, AbiInstabilityErrors, CheckingGlobals, check_layout_compatibility_with_globals,
};
use conjure_abi::abi_stable::type_layout::{TLData, TypeLayout};

/// Compares the layout of a plugin's root with the host's.
///
/// # Errors
/// The first difference that matters.
pub(super) fn check(plugin: &'static TypeLayout) -> Result<(), String> {
    let host = <RootRef as StableAbi>::LAYOUT;
    if let Err(newer) = check_one_way(host, plugin)
        && let Err(older) = check_one_way(plugin, host)
    {
        // The shorter list of differences is the one of the direction that was meant.
        return Err(if older.len() < newer.len() {
            older
        } else {
            newer
        }
        .into_iter()
        .next()
        .unwrap_or_default());
    }
    check_prefixes(&prefixes(host), &prefixes(plugin))
}

/// What differs when the first is expected and the second found, without sizes of prefixes.
fn check_one_way(
    expected: &'static TypeLayout,
    found: &'static TypeLayout,
) -> Result<(), Vec<String>> {
    // With tables of its own each time: the process-wide ones would compare a plugin with all
    // plugins before it.
    let globals = CheckingGlobals::new();
    let Err(AbiInstabilityErrors { errors, .. }) =
        check_layout_compatibility_with_globals(expected, found, &globals)
    else {
        return Ok(());
    };
    let differences: Vec<String> = errors
        .iter()
        .flat_map(|error| error.errs.iter().map(move |e| (error, e)))
        .filter(|(_, difference)| !matches!(difference, AbiInstability::MismatchedPrefixSize(_)))
        .map(|(error, difference)| {
            let place = error
                .stack_trace
                .last()
                .map(|found| found.expected.to_string())
                .unwrap_or_default();
            one_line(&format!("{difference:?} {place}"))
        })
        .collect();
    if differences.is_empty() {
        Ok(())
    } else {
        Err(differences)
    }
}

fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(300) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// How many items a function table has, and how many of them its callers rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FunctionTable {
    required_items: usize,
    items: usize,
}

type TypeName = (String, String);

/// The prefix types that a layout leads to, by module and name.
fn prefixes(root: &'static TypeLayout) -> HashMap<TypeName, FunctionTable> {
    let mut found = HashMap::new();
    let mut seen = HashSet::new();
    let mut next = vec![root];
    while let Some(layout) = next.pop() {
        if !seen.insert(layout.get_utypeid()) {
            continue;
        }
        if let TLData::PrefixType(prefix) = layout.data() {
            let name = (layout.mod_path().to_string(), layout.name().to_owned());
            let prefix = FunctionTable {
                required_items: prefix.first_suffix_field.into(),
                items: prefix.fields.len(),
            };
            found.insert(name, prefix);
        }
        next.extend(layout.shared_vars().type_layouts().iter().map(|get| get()));
    }
    found
}

fn check_prefixes(
    host: &HashMap<TypeName, FunctionTable>,
    plugin: &HashMap<TypeName, FunctionTable>,
) -> Result<(), String> {
    for (name, host) in host {
        let Some(plugin) = plugin.get(name) else {
            continue;
        };
        let (module, ty) = name;
        // The host makes the contexts that plugins call; root and plugin object it calls; what
        // comes from `abi_stable` itself goes both ways.
        let host_makes = module.contains("CallCx") || !module.contains("conjure_abi");
        let plugin_makes = !module.contains("CallCx");
        if host_makes && host.items < plugin.required_items {
            return Err(format!(
                "the plugin relies on {} items of {module}::{ty}, and this host has {}",
                plugin.required_items, host.items
            ));
        }
        if plugin_makes && plugin.items < host.required_items {
            return Err(format!(
                "this host relies on {} items of {module}::{ty}, and the plugin has {}",
                host.required_items, plugin.items
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_fits_itself() {
        assert_eq!(check(<RootRef as StableAbi>::LAYOUT), Ok(()));
    }

    #[test]
    fn the_function_tables_of_the_abi_are_found() {
        let found = prefixes(<RootRef as StableAbi>::LAYOUT);
        for part in ["CallCx", "Plugin_trait", "root"] {
            assert!(
                found.keys().any(|(module, _)| module.contains(part)),
                "{part} is not in {:?}",
                found.keys()
            );
        }
    }

    #[test]
    fn each_side_relies_only_on_what_the_other_has() {
        let table = |module: &str, relied_on, items| {
            let name = (module.to_owned(), "VTable".to_owned());
            HashMap::from([(
                name,
                FunctionTable {
                    required_items: relied_on,
                    items,
                },
            )])
        };
        let context =
            |relied_on, items| table("conjure_abi::context::CallCx_trait", relied_on, items);
        let plugin =
            |relied_on, items| table("conjure_abi::plugin::Plugin_trait", relied_on, items);
        let fits = |host, found| check_prefixes(&host, &found).is_ok();
        assert!(
            fits(context(4, 4), context(3, 3)),
            "an older plugin uses fewer"
        );
        assert!(
            !fits(context(4, 4), context(5, 5)),
            "a newer one may not rely on more"
        );
        assert!(fits(context(4, 4), context(4, 5)), "it may know more");
        assert!(!fits(plugin(2, 2), plugin(1, 1)), "the host calls both");
        assert!(fits(plugin(2, 2), plugin(3, 3)));
    }
}
