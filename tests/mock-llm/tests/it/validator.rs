//! One mutation of a legal request for each rule of each wire: the legal one passes, the mutation
//! breaks exactly the rule that it is for.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use std::collections::BTreeSet;

use conjure_mock_llm::{Request, Rule, Violation, Wire, validate, verify};
use serde_json::Value;

/// A change of a legal request, and the rule that it breaks.
type Mutation = (Rule, Box<dyn Fn(&mut Request)>);

/// Everything that is wrong with a request.
fn judge(wire: Wire, request: &Request) -> Vec<Violation> {
    let mut violations = validate(wire, request);
    violations.extend(verify(wire, request));
    violations
}

fn each_mutation_breaks_its_rule(wire: Wire, legal: &Request, mutations: Vec<Mutation>) {
    assert_eq!(judge(wire, legal), []);
    let mut seen = BTreeSet::new();
    let mut wrong: Vec<(Rule, Vec<Violation>)> = Vec::new();
    for (rule, mutate) in mutations {
        let mut mutated = legal.clone();
        mutate(&mut mutated);
        let found = judge(wire, &mutated);
        let broken: BTreeSet<Rule> = found.iter().map(|violation| violation.rule).collect();
        if broken != BTreeSet::from([rule]) {
            wrong.push((rule, found));
        }
        seen.insert(rule);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let rules: BTreeSet<Rule> = wire.rules().into_iter().collect();
    assert_eq!(rules, seen, "a rule has no mutation, or is not listed");
}

/// Any change.
fn change(rule: Rule, change: impl Fn(&mut Value) + 'static) -> Mutation {
    (
        rule,
        Box::new(move |request: &mut Request| change(&mut request.body)),
    )
}

/// Sets a value at a place of the body.
fn set(rule: Rule, pointer: &'static str, value: Value) -> Mutation {
    let mutate = move |request: &mut Request| {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match request.body.pointer_mut(parent).unwrap() {
            Value::Array(array) => array[key.parse::<usize>().unwrap()] = value.clone(),
            object => object[key] = value.clone(),
        }
    };
    (rule, Box::new(mutate))
}

/// Removes a value from the body.
fn remove(rule: Rule, pointer: &'static str) -> Mutation {
    let mutate = move |request: &mut Request| {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match request.body.pointer_mut(parent).unwrap() {
            Value::Array(array) => drop(array.remove(key.parse().unwrap())),
            object => drop(object.as_object_mut().unwrap().remove(key).unwrap()),
        }
    };
    (rule, Box::new(mutate))
}

/// Adds a value at the end of a list.
fn push(rule: Rule, pointer: &'static str, value: Value) -> Mutation {
    let mutate = move |request: &mut Request| {
        request
            .body
            .pointer_mut(pointer)
            .unwrap()
            .as_array_mut()
            .unwrap()
            .push(value.clone());
    };
    (rule, Box::new(mutate))
}

/// Removes a header.
fn without(rule: Rule, header: &'static str) -> Mutation {
    (
        rule,
        Box::new(move |request: &mut Request| request.headers.retain(|(name, _)| name != header)),
    )
}
