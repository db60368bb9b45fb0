use std::fs;

use model::snapshot::Condition;
use model::{Planner, Snapshot};
use tempfile::TempDir;

use super::*;

/// Longer than any event takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

const BASE: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec: {domain: fleet.example, nameservers: [{name: ns1.fleet.example, addresses: [192.0.2.53]}], gateway: {addresses: [192.0.2.10]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {}
";

fn cluster(name: &str, id: &str) -> String {
    format!(
        "apiVersion: fleetgate.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec:\n  tenant: acme\n  zone: main\n  clusterID: {id}\n  controlPlane: {{kubeApiserver: {{addresses: [\"127.0.0.1:6443\"]}}}}\n"
    )
}

/// A home with a planner behind it, as `serve` has them.
struct Fixture {
    home: Home,
    planner: Planner,
    refused: Vec<RefusedFile>,
    folder_error: Option<FolderError>,
}

impl Fixture {
    fn open(root: &Path, database: Database) -> Result<Self, OpenError> {
        Self::open_with(root, database, None)
    }

    fn open_with(root: &Path, database: Database, resolver: Option<Resolver>) -> Result<Self, OpenError> {
        let (home, update) = Home::open(root, Arc::new(database), resolver)?;
        let mut fixture = Self { home, planner: Planner::default(), refused: Vec::new(), folder_error: None };
        fixture.absorb(update);
        Ok(fixture)
    }

    fn absorb(&mut self, update: Update) {
        assert!(update.unsaved.is_none(), "{:?}", update.unsaved);
        self.planner.apply(update.recalled, Timestamp(1));
        self.planner.apply(update.facts, Timestamp(1));
        self.refused = update.refused;
        self.folder_error = update.folder;
    }

    /// Takes updates until what is asked for holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "never: {what}; refused: {:?}", self.refused);
            let update = self.home.next(Some(Instant::now() + Duration::from_millis(100))).expect("nobody stops it");
            self.absorb(update);
        }
    }

    fn snapshot(&self) -> &Snapshot {
        self.planner.snapshot()
    }

    fn serves(&self, id: &str) -> bool {
        self.snapshot().route_by_id(id.as_bytes()).is_some()
    }

    fn refusal(&self, cluster: &str) -> Option<Condition> {
        let object = ObjectRef::cluster_scoped(model::identity::Kind::Cluster, cluster.parse().unwrap());
        self.snapshot().status(&object)?.refusal().cloned()
    }
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(root.path().join(name), text).unwrap();
    }
    root
}

fn start(files: &[(&str, &str)]) -> (TempDir, Fixture) {
    let root = folder(files);
    let fixture = Fixture::open(root.path(), Database::in_memory().unwrap()).unwrap();
    (root, fixture)
}

#[test]
fn a_new_file_serves_and_a_deleted_one_does_not() {
    let (root, mut fixture) = start(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", "one"))]);
    assert!(fixture.serves("one"));
    fs::write(root.path().join("c2.yaml"), cluster("c2", "two")).unwrap();
    fixture.until("c2 serves", |fixture| fixture.serves("two"));
    fs::remove_file(root.path().join("c1.yaml")).unwrap();
    fixture.until("c1 is gone", |fixture| !fixture.serves("one"));
    assert!(fixture.serves("two"));
}

/// How editors and tools save: each must lead to the new content, and never through a state without the cluster.
#[test]
fn every_way_of_saving_is_noticed() {
    type Save = fn(&Path, &str);
    let ways: [(&str, Save); 5] = [
        ("write in place", |path, text| fs::write(path, text).unwrap()),
        ("write beside and rename", |path, text| {
            let beside = path.with_extension("tmp");
            fs::write(&beside, text).unwrap();
            fs::rename(beside, path).unwrap();
        }),
        ("move the old away, write anew, delete the old", |path, text| {
            let backup = path.with_extension("yaml~");
            fs::rename(path, &backup).unwrap();
            fs::write(path, text).unwrap();
            fs::remove_file(backup).unwrap();
        }),
        ("delete and write anew", |path, text| {
            fs::remove_file(path).unwrap();
            fs::write(path, text).unwrap();
        }),
        ("replace by a link", |path, text| {
            let target = path.with_extension("target");
            fs::write(&target, text).unwrap();
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        }),
    ];
    for (name, save) in ways {
        let (root, mut fixture) = start(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", "old"))]);
        save(&root.path().join("c1.yaml"), &cluster("c1", "new"));
        fixture.until(name, |fixture| {
            assert!(fixture.serves("old") || fixture.serves("new"), "{name}: c1 was away");
            fixture.serves("new")
        });
        assert!(!fixture.serves("old"), "{name}");
    }
}

#[test]
fn a_config_map_swap_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    let publish = |generation: &str, id: &str| {
        let dir = root.path().join(format!("..{generation}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("fleet.yaml"), format!("{BASE}---\n{}", cluster("c1", id))).unwrap();
        std::os::unix::fs::symlink(&dir, root.path().join("..data_tmp")).unwrap();
        fs::rename(root.path().join("..data_tmp"), root.path().join("..data")).unwrap();
    };
    publish("1", "old");
    std::os::unix::fs::symlink("..data/fleet.yaml", root.path().join("fleet.yaml")).unwrap();
    let mut fixture = Fixture::open(root.path(), Database::in_memory().unwrap()).unwrap();
    assert!(fixture.serves("old"));
    publish("2", "new");
    fixture.until("the new content", |fixture| fixture.serves("new"));
}

#[test]
fn a_half_written_file_is_not_read() {
    use std::io::Write as _;
    let text = format!("{BASE}---\n{}---\n{}", cluster("c1", "one"), cluster("c2", "two"));
    let (root, mut fixture) = start(&[("fleet.yaml", &text)]);
    let mut file = fs::File::create(root.path().join("fleet.yaml")).unwrap();
    file.write_all(BASE.as_bytes()).unwrap();
    file.sync_all().unwrap();
    // Another file is saved meanwhile, so that updates do come.
    fs::write(root.path().join("c3.yaml"), cluster("c3", "three")).unwrap();
    fixture.until("c3 serves", |fixture| fixture.serves("three"));
    assert!(fixture.serves("one") && fixture.serves("two"));
    file.write_all(format!("---\n{}", cluster("c2", "two")).as_bytes()).unwrap();
    drop(file);
    fixture.until("c1 is gone", |fixture| !fixture.serves("one"));
    assert!(fixture.serves("two"));
}

#[test]
fn a_broken_file_keeps_its_last_good_state_and_stops_nobody() {
    let (root, mut fixture) = start(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", "one"))]);
    fs::write(root.path().join("c1.yaml"), cluster("c1", "one").replace("tenant: acme", "tenant: acme\n  colour: red"))
        .unwrap();
    fixture.until("the file is refused", |fixture| !fixture.refused.is_empty());
    let refused = &fixture.refused[0];
    assert_eq!(refused.file, Path::new("c1.yaml"));
    assert_eq!(refused.mistakes[0].line, 6, "{:?}", refused.mistakes);
    assert!(refused.mistakes[0].reason.contains("colour"));
    assert!(fixture.serves("one"));

    fs::write(root.path().join("c2.yaml"), cluster("c2", "two")).unwrap();
    fixture.until("another file is taken", |fixture| fixture.serves("two"));
    fs::write(root.path().join("c1.yaml"), cluster("c1", "uno")).unwrap();
    fixture.until("the mended file is taken", |fixture| fixture.serves("uno") && fixture.refused.is_empty());
}

#[test]
fn an_object_defined_twice_is_refused_where_it_came_second() {
    let (root, mut fixture) = start(&[("base.yaml", BASE), ("z.yaml", &cluster("c1", "first"))]);
    fs::write(root.path().join("a.yaml"), cluster("c1", "second")).unwrap();
    fixture.until("a.yaml is refused", |fixture| !fixture.refused.is_empty());
    assert_eq!(fixture.refused[0].file, Path::new("a.yaml"));
    assert_eq!(fixture.refused[0].mistakes[0].reason, "Cluster c1 is already defined in z.yaml:1");
    assert!(fixture.serves("first"));
    fs::remove_file(root.path().join("z.yaml")).unwrap();
    fixture.until("a.yaml takes over", |fixture| fixture.serves("second") && fixture.refused.is_empty());
}

#[test]
fn a_double_in_one_file_names_both_lines() {
    let text = format!("{}---\n{}", cluster("c1", "one"), cluster("c1", "two"));
    let (_root, fixture) = start(&[("base.yaml", BASE), ("c.yaml", &text)]);
    let mistake = &fixture.refused[0].mistakes[0];
    assert_eq!((mistake.line, mistake.reason.as_str()), (10, "Cluster c1 is already defined in c.yaml:1"));
}

#[test]
fn an_object_that_moves_to_another_file_is_never_away() {
    let (root, mut fixture) = start(&[("base.yaml", BASE), ("a.yaml", &cluster("c1", "one"))]);
    let since = fixture.home.held.values().map(|held| held.since).max();
    fs::rename(root.path().join("a.yaml"), root.path().join("b.yaml")).unwrap();
    fixture.until("b.yaml is the owner", |fixture| {
        assert!(fixture.serves("one"), "c1 was away");
        fixture.home.held.values().any(|held| held.file == Path::new("b.yaml"))
    });
    // Past the time that an absent file is waited for.
    fixture.until("a.yaml is forgotten", |fixture| !fixture.home.files.contains_key(Path::new("a.yaml")));
    assert!(fixture.serves("one"));
    assert_eq!(fixture.home.held.values().map(|held| held.since).max(), since);
}

#[test]
fn who_was_first_survives_a_restart() {
    let root = folder(&[("base.yaml", BASE), ("z.yaml", &cluster("zebra", "same"))]);
    let data = tempfile::tempdir().unwrap();
    {
        let mut fixture = Fixture::open(root.path(), Database::open(data.path()).unwrap()).unwrap();
        fs::write(root.path().join("a.yaml"), cluster("aardvark", "same")).unwrap();
        fixture.until("aardvark is refused", |fixture| fixture.refusal("aardvark").is_some());
    }
    let fixture = Fixture::open(root.path(), Database::open(data.path()).unwrap()).unwrap();
    let refusal = fixture.refusal("aardvark").unwrap();
    assert_eq!(refusal.reason, "ClusterIdTaken");
    assert_eq!(refusal.message, "cluster id same belongs to Cluster zebra, which was first");
    assert!(fixture.refusal("zebra").is_none());
}

#[test]
fn the_last_good_state_survives_a_restart_with_a_broken_folder() {
    let root = folder(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", "one"))]);
    let data = tempfile::tempdir().unwrap();
    drop(Fixture::open(root.path(), Database::open(data.path()).unwrap()).unwrap());

    fs::write(root.path().join("c1.yaml"), "kind: [broken").unwrap();
    fs::write(root.path().join("c2.yaml"), cluster("c2", "two")).unwrap();
    let mut fixture = Fixture::open(root.path(), Database::open(data.path()).unwrap()).unwrap();
    assert!(fixture.serves("one") && fixture.serves("two"));
    assert_eq!(fixture.refused[0].file, Path::new("c1.yaml"));
    fs::write(root.path().join("c1.yaml"), cluster("c1", "uno")).unwrap();
    fixture.until("the mended file", |fixture| fixture.serves("uno"));
    assert!(!fixture.serves("one"));
    drop(fixture);

    fs::remove_file(root.path().join("c2.yaml")).unwrap();
    let mut fixture = Fixture::open(root.path(), Database::open(data.path()).unwrap()).unwrap();
    fixture.until("what was deleted meanwhile goes", |fixture| !fixture.serves("two"));
    assert!(fixture.serves("uno"));
}

#[test]
fn a_folder_that_vanishes_takes_nothing_with_it() {
    let data = tempfile::tempdir().unwrap();
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("fleet");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("base.yaml"), BASE).unwrap();
    for number in 0..200 {
        fs::write(root.join(format!("c{number}.yaml")), cluster(&format!("c{number}"), &format!("id{number}")))
            .unwrap();
    }
    let mut fixture = Fixture::open(&root, Database::open(data.path()).unwrap()).unwrap();
    assert_eq!(fixture.snapshot().cluster_count(), 200);

    fs::remove_dir_all(&root).unwrap();
    fixture.until("the folder is missed", |fixture| {
        assert_eq!(fixture.snapshot().cluster_count(), 200);
        matches!(fixture.folder_error, Some(FolderError::Missing(_)))
    });
    drop(fixture);

    let mut fixture = Fixture::open(&root, Database::open(data.path()).unwrap()).unwrap();
    assert!(matches!(fixture.folder_error, Some(FolderError::Missing(_))));
    assert_eq!(fixture.snapshot().cluster_count(), 200);

    // It comes back under another identity, renamed into place.
    let beside = outer.path().join("fleet.new");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("base.yaml"), BASE).unwrap();
    fs::write(beside.join("c7.yaml"), cluster("c7", "id7")).unwrap();
    fs::rename(&beside, &root).unwrap();
    fixture.until("the new folder counts", |fixture| fixture.snapshot().cluster_count() == 1);
    assert!(fixture.serves("id7") && fixture.folder_error.is_none());
    fs::write(root.join("c8.yaml"), cluster("c8", "id8")).unwrap();
    fixture.until("the new folder is watched", |fixture| fixture.serves("id8"));
}

#[test]
fn a_folder_that_was_never_there_is_an_error() {
    let outer = tempfile::tempdir().unwrap();
    let missing = outer.path().join("none");
    let error = Fixture::open(&missing, Database::in_memory().unwrap()).err().unwrap();
    assert!(matches!(error, OpenError::Folder(FolderError::Missing(_))), "{error}");
    let file = outer.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Fixture::open(&file, Database::in_memory().unwrap()).err().unwrap();
    assert!(matches!(error, OpenError::Folder(FolderError::NotAFolder(_))), "{error}");
}

#[test]
fn a_folder_inside_the_folder_is_read_and_watched() {
    let (root, mut fixture) = start(&[("base.yaml", BASE)]);
    let team = root.path().join("team/a");
    fs::create_dir_all(&team).unwrap();
    fs::write(team.join("c1.yaml"), cluster("c1", "one")).unwrap();
    fixture.until("c1 serves", |fixture| fixture.serves("one"));
    fs::rename(root.path().join("team"), root.path().join(".team")).unwrap();
    fixture.until("c1 is gone", |fixture| !fixture.serves("one"));
}

#[test]
fn only_the_changed_document_of_a_large_file_is_read_again() {
    let documents: Vec<String> = (0..50).map(|n| cluster(&format!("c{n}"), &format!("id{n}"))).collect();
    let text = format!("{BASE}---\n{}", documents.join("---\n"));
    let (root, mut fixture) = start(&[("fleet.yaml", &text)]);
    fs::write(root.path().join("fleet.yaml"), text.replace("clusterID: id7\n", "clusterID: seven\n")).unwrap();
    let update = loop {
        let update = fixture.home.next(Some(Instant::now() + PATIENCE)).unwrap();
        if !update.facts.is_empty() {
            break update;
        }
    };
    assert_eq!(update.facts.len(), 1, "{:?}", update.facts);
}

const KEY: &str = "0123456789abcdef0123456789abcdef";
const NEXT_KEY: &str = "fedcba9876543210fedcba9876543210";

fn keyed(path: &str) -> String {
    cluster("c1", "one") + &format!("  proof: {{required: true, keys: [{{file: {path}}}]}}\n")
}

impl Fixture {
    fn key(&self) -> Option<String> {
        let route = self.snapshot().route_by_id(b"one")?;
        Some(String::from_utf8_lossy(route.proof.keys.first()?.octets()).into_owned())
    }
}

#[test]
fn a_file_that_a_manifest_names_is_read_and_followed() {
    let root = folder(&[("base.yaml", BASE)]);
    fs::create_dir(root.path().join("c")).unwrap();
    fs::write(root.path().join("c/c1.yaml"), keyed("c1.key")).unwrap();
    let mut fixture = Fixture::open(root.path(), Database::in_memory().unwrap()).unwrap();
    let [refused] = fixture.refused.as_slice() else { panic!("{:?}", fixture.refused) };
    let mistake = &refused.mistakes[0];
    assert!(mistake.line == 9 && mistake.reason.starts_with("c1.key: cannot be opened"), "{mistake}");

    let key = root.path().join("c/c1.key");
    fs::write(&key, KEY).unwrap();
    fixture.until("the key is there", |fixture| fixture.key().as_deref() == Some(KEY));
    fs::write(root.path().join("c/new"), NEXT_KEY).unwrap();
    fs::rename(root.path().join("c/new"), &key).unwrap();
    fixture.until("the next key counts", |fixture| fixture.key().as_deref() == Some(NEXT_KEY));

    fs::write(&key, "short").unwrap();
    fixture.until("a bad key is refused", |fixture| !fixture.refused.is_empty());
    assert!(!format!("{:?}", fixture.refused).contains("\"short\""), "what a key file holds is not told");
    fs::remove_file(&key).unwrap();
    fixture.until("its absence is told", |fixture| {
        fixture.refused.iter().any(|refused| refused.mistakes[0].reason.contains("cannot be opened"))
    });
    assert_eq!(fixture.key().as_deref(), Some(NEXT_KEY), "the last good one keeps serving");
}

#[test]
fn a_file_outside_of_the_folder_is_not_read() {
    let (_root, fixture) = start(&[("base.yaml", BASE), ("c1.yaml", &keyed("../c1.key"))]);
    assert!(fixture.refused[0].mistakes[0].reason.contains("has no `..`"), "{:?}", fixture.refused);
}

#[test]
fn a_named_file_is_recalled_and_compared_after_a_restart() {
    let (root, data) =
        (folder(&[("base.yaml", BASE), ("c1.yaml", &keyed("c1.key")), ("c1.key", KEY)]), tempfile::tempdir().unwrap());
    let open = || Fixture::open(root.path(), Database::open(data.path()).unwrap()).unwrap();
    assert_eq!(open().key().as_deref(), Some(KEY));
    fs::remove_file(root.path().join("c1.key")).unwrap();
    let fixture = open();
    assert_eq!((fixture.key().as_deref(), fixture.refused.len()), (Some(KEY), 1));
    drop(fixture);
    fs::write(root.path().join("c1.key"), NEXT_KEY).unwrap();
    assert_eq!(open().key().as_deref(), Some(NEXT_KEY));
}

#[test]
fn a_bad_zone_file_is_told_with_its_line_and_the_old_zone_keeps_serving() {
    let zone = BASE.replace("gateway:", "zoneFile: {file: extra.zone}, gateway:");
    let (root, mut fixture) = start(&[("base.yaml", &zone), ("extra.zone", "www A 192.0.2.80\n")]);
    assert_eq!(fixture.refused, []);
    let records = |fixture: &Fixture| {
        let zone = fixture.snapshot().zone(&"main".parse().unwrap()).unwrap();
        let file = zone.file.as_ref().unwrap();
        let set = file.sets_of(&"www.fleet.example".parse().unwrap()).map(|number| file.set(number)).next().unwrap();
        set.records().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    assert_eq!(records(&fixture), [[192, 0, 2, 80]]);
    let file = root.path().join("extra.zone");
    fs::write(&file, "www A 192.0.2.81\nmail A 192.0.2.300\n").unwrap();
    fixture.until("the mistake is told", |fixture| !fixture.refused.is_empty());
    let mistake = &fixture.refused[0].mistakes[0];
    assert!(mistake.line == 4 && mistake.reason.starts_with("extra.zone:2:8: "), "{mistake}");
    assert_eq!(records(&fixture), [[192, 0, 2, 80]]);
    fs::write(&file, "www A 192.0.2.81\n").unwrap();
    fixture.until("it is mended", |fixture| records(fixture) == [[192, 0, 2, 81]]);
}

/// Ports are kept over a restart, freed by who is gone, and given to who waits.
#[test]
fn clusters_have_ports_of_the_resolver() {
    let data = tempfile::tempdir().unwrap();
    let files =
        [("c1.yaml", cluster("c1", "one")), ("c2.yaml", cluster("c2", "two")), ("c3.yaml", cluster("c3", "three"))];
    let root = folder(&[("base.yaml", BASE)]);
    let open = |range: &str| {
        let resolver = Resolver { address: Some([127, 0, 0, 1].into()), ports: range.parse().unwrap() };
        Fixture::open_with(root.path(), Database::open(data.path()).unwrap(), Some(resolver)).unwrap()
    };
    let port = |fixture: &Fixture, name: &str| {
        let part = Arc::clone(fixture.snapshot().cluster(&name.parse().unwrap())?);
        let place = part.resolver.place?;
        assert_eq!(place.address, Some([127, 0, 0, 1].into()));
        Some(place.port)
    };
    let ports = |fixture: &Fixture| ["c1", "c2", "c3"].map(|name| port(fixture, name));

    let mut fixture = open("5401-5402");
    // The last in the alphabet is the earliest.
    for (name, text) in files.iter().rev() {
        fs::write(root.path().join(name), text).unwrap();
        let id = text.split("clusterID: ").nth(1).unwrap().lines().next().unwrap();
        fixture.until(name, |fixture| fixture.serves(id));
    }
    assert_eq!(ports(&fixture), [None, Some(5402), Some(5401)]);
    drop(fixture);
    let mut fixture = open("5401-5402");
    assert_eq!(ports(&fixture), [None, Some(5402), Some(5401)], "a restart moved them");
    fs::remove_file(root.path().join("c3.yaml")).unwrap();
    fixture.until("c1 has the free one", |fixture| port(fixture, "c1").is_some());
    assert_eq!(ports(&fixture), [Some(5401), Some(5402), None]);
    drop(fixture);
    fs::remove_file(root.path().join("c1.yaml")).unwrap();
    // Gone while nobody looked: it is missed for a moment, and then its port is free.
    let mut fixture = open("5401-5402");
    fixture.until("c1 is gone", |fixture| !fixture.serves("one"));
    fs::write(root.path().join("c3.yaml"), cluster("c3", "three")).unwrap();
    fixture.until("c3 is back", |fixture| fixture.serves("three"));
    assert_eq!(ports(&fixture), [None, Some(5402), Some(5401)]);
    drop(fixture);
    assert_eq!(ports(&open("6001-6009")), [None, Some(6001), Some(6002)], "another range");
}
