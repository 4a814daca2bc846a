//! The interfaces that a component may import, and what to say about the others.

use super::Refusal;

/// Everything that the host links, with the version track that it links it at.
const LINKED: &[(&str, &str, &[&str])] = &[
    ("compline:task", "0.1", &["execution", "log", "types"]),
    (
        "wasi:cli",
        "0.2",
        &[
            "environment",
            "exit",
            "stderr",
            "stdin",
            "stdout",
            "terminal-input",
            "terminal-output",
            "terminal-stderr",
            "terminal-stdin",
            "terminal-stdout",
        ],
    ),
    ("wasi:clocks", "0.2", &["monotonic-clock", "wall-clock"]),
    ("wasi:filesystem", "0.2", &["preopens", "types"]),
    ("wasi:io", "0.2", &["error", "poll", "streams"]),
    ("wasi:random", "0.2", &["insecure", "insecure-seed", "random"]),
    (
        "wasi:sockets",
        "0.2",
        &["instance-network", "ip-name-lookup", "network", "tcp", "tcp-create-socket", "udp", "udp-create-socket"],
    ),
];

/// Accepts an import that the host links.
pub(super) fn check(name: &str) -> Result<(), Refusal> {
    let refuse = |hint: String| Err(Refusal::UnknownImport { name: name.to_owned(), hint });
    let Some((package, rest)) = name.split_once('/') else {
        return refuse(
            "a task may import interfaces of `compline:task` and `wasi` 0.2 only. Leave out the functions and plain imports that \
             your world adds"
                .into(),
        );
    };
    let (interface, version) = rest.split_once('@').unwrap_or((rest, ""));
    let Some((_, track, interfaces)) = LINKED.iter().find(|(linked, ..)| *linked == package) else {
        return refuse(unknown_package(package));
    };
    if !interfaces.contains(&interface) {
        let known: Vec<_> = interfaces.iter().map(|known| format!("`{known}`")).collect();
        return refuse(format!("of `{package}` {track} there are {}", known.join(", ")));
    }
    if on_track(version, track) {
        return Ok(());
    }
    refuse(match version {
        "" => format!("it names no version. Build against `{package}/{interface}@{track}.0` or a later {track}"),
        _ => format!(
            "version {version} is not, {track} is. Build against `{package}/{interface}@{track}.0` or a later {track}{}",
            if package == "compline:task" { "" } else { ", for Rust with the target `wasm32-wasip2`" }
        ),
    })
}

/// Whether a version is `track.N`, without a pre-release name.
fn on_track(version: &str, track: &str) -> bool {
    let patch = version.strip_prefix(track).and_then(|rest| rest.strip_prefix('.'));
    patch.is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
}

fn unknown_package(package: &str) -> String {
    match package {
        "wasi:http" => "requests to the outside are not available to tasks. Remove the HTTP client from the task".into(),
        _ => "a task may import interfaces of `compline:task` 0.1 and of `wasi` 0.2 (cli, clocks, filesystem, io, random, sockets). \
              Remove what needs this one, or compose the component that provides it into yours (`wac plug`)"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn every_linked_interface_is_accepted_at_its_track_only() {
        for (package, track, interfaces) in super::LINKED {
            for interface in *interfaces {
                for patch in ["0", "9", "12"] {
                    assert_eq!(check(&format!("{package}/{interface}@{track}.{patch}")), Ok(()));
                }
                for version in ["", "@0.3.0", "@1.0.0", "@0.2", "@0.2.0-rc-2023-11-10"] {
                    assert!(
                        check(&format!("{package}/{interface}{version}")).is_err(),
                        "{package}/{interface}{version}"
                    );
                }
            }
        }
    }

    #[test]
    fn hints_name_the_version_and_the_neighbours() {
        let text = check("wasi:cli/environment@0.3.0").unwrap_err().to_string();
        assert!(text.contains("version 0.3.0 is not, 0.2 is") && text.contains("wasm32-wasip2"), "{text}");
        let text = check("compline:task/state@0.1.0").unwrap_err().to_string();
        assert!(text.contains("`execution`, `log`, `types`"), "{text}");
        let text = check("wasi:http/outgoing-handler@0.2.4").unwrap_err().to_string();
        assert!(text.contains("requests to the outside"), "{text}");
        assert!(check("print").unwrap_err().to_string().contains("interfaces of `compline:task`"));
    }
}
