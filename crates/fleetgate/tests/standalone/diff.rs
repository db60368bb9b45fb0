//! `fleetgate check --diff`: what would resolve differently, before it is applied.

use crate::server::{BASE, Fleet, cluster, fleetgate, nowhere};

#[test]
fn a_folder_is_compared_with_what_is_served() {
    let now = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 11))]);
    let next = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 12))]);
    let server = now.serve();
    let diff = |fleet: &Fleet, more: &[&str]| {
        let output = fleetgate().args(["check", "--diff", "--fleet"]).arg(fleet.folder()).args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let admin = server.admin.to_string();
    let expected = "- *.c1.fleet.example 30 A 198.51.100.11\n+ *.c1.fleet.example 30 A 198.51.100.12\n1 name would resolve differently\n";
    let of_server = diff(&next, &["--admin", &admin]);
    assert!(of_server.starts_with(expected), "{of_server}");
    let folder = now.folder();
    assert_eq!(diff(&next, &["--against", folder.to_str().unwrap()]), of_server, "the same, folder by folder");
    assert!(diff(&now, &["--admin", &admin]).starts_with("nothing would resolve differently"));
    let colours = diff(&next, &["--admin", &admin, "--color", "always"]);
    assert!(colours.starts_with("\x1b[33m- *.c1.fleet.example 30 A 198.51.100.11\x1b[0m\n\x1b[33m+ "), "{colours:?}");
    assert!(colours.ends_with("\x1b[32mall in order\x1b[0m\n"), "{colours:?}");
    server.terminate();
}
