//! slotline in cargo's default release profile: the program side of `slotline_benches::protocol`.

fn main() -> anyhow::Result<()> {
    slotline_benches::peer::ours::serve()
}
