# Makes a CycloneDX SBOM of `cargo metadata`: the crates that are linked into the program. What only builds or tests it is left
# out. Arguments: $created (RFC 3339), $name (of the file that it is about), $digest (its SHA-256), $crates (what `cargo tree`
# names with the same features, `name@version`: the metadata joins the features of all members of the workspace), $libc (as the C
# library names itself), $rust (the version of the compiler, whose standard library is linked).
.packages as $packages
| ($packages | map({key: .id, value: .}) | from_entries) as $by_id
| ($crates | map({key: ., value: true}) | from_entries) as $is_linked
| (.resolve.nodes | map({key: .id, value: [.deps[] | select(any(.dep_kinds[]; .kind == null)) | .pkg
    | select($is_linked[$by_id[.] | "\(.name)@\(.version)"])]}) | from_entries) as $links
| .resolve.root as $root
| {seen: [], next: [$root]}
| until(.next == []; . as $walk
    | {seen: (.seen + .next), next: ([.next[] | $links[.][]] | unique - ($walk.seen + $walk.next))})
| .seen as $linked
| [{name: "glibc", version: ($libc | split(" ")[-1]), licence: "LGPL-2.1-or-later", description: $libc},
   {name: "rust-std", version: $rust, licence: "MIT OR Apache-2.0", description: "The standard library of Rust"}] as $runtime
| def runtime: "pkg:generic/\(.name)@\(.version)";
  def reference: $by_id[.] | "pkg:cargo/\(.name)@\(.version)";
  {
    bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
    metadata: {
      timestamp: $created,
      component: {type: "application", "bom-ref": ($root | reference), name: $name, version: $by_id[$root].version,
        purl: ($root | reference), hashes: [{alg: "SHA-256", content: $digest}], licenses: [{expression: $by_id[$root].license}]}
    },
    components: ([$linked[] | select(. != $root) | . as $id | $by_id[.]
      | {type: "library", "bom-ref": ($id | reference), name: .name, version: .version, purl: ($id | reference), scope: "required"}
        + (if .license then {licenses: [{expression: (.license | gsub("/"; " OR "))}]} else {} end)
        + (if .repository then {externalReferences: [{type: "vcs", url: .repository}]} else {} end)]
      + [$runtime[] | {type: "library", "bom-ref": runtime, name, version, description, purl: runtime, scope: "required", licenses: [{expression: .licence}]}]
      | sort_by(.purl)),
    dependencies: ([$linked[] | {ref: reference, dependsOn: ([($links[.][] | reference), if . == $root then $runtime[] | runtime else empty end] | unique)}]
      + [$runtime[] | {ref: runtime, dependsOn: []}] | sort_by(.ref))
  }
