// Exit statuses and examples at the end of every subcommand's help and manual page.
#include <map>
#include <string>

#include "audit/commands/commands.h"
#include "command_line/ends.h"

namespace plumbline::audit {
namespace {

constexpr const char* kUsage = "bad usage";
constexpr const char* kNoServer = "bad usage, no server answered, or the server refused";

const std::map<std::string, HelpEnd>& Ends() {
  static const auto* ends = new std::map<std::string, HelpEnd>{
      {"audit",
       {{{0, "no finding at or above the level of --fail-on (default error)"},
         {1, "at least one such finding"},
         {2, "bad usage, or an input could not be read completely (the readable part is judged)"}},
        {"plumb audit runs/exp1", "plumb audit runs/exp1 --format json --output report.json",
         "plumb audit dumps/ --rules 'causality/*' --fail-on warning",
         "plumb audit --server 127.0.0.1:7433 --run exp1",
         "plumb audit train.log --follow --send 127.0.0.1:7433 --run exp1"},
        ""}},
      {"run",
       {{{0, "the trainer's own exit status, whatever was found"},
         {2, "also: bad usage; the trainer was not started"},
         {126, "also: the trainer's program could not be run"},
         {127, "also: there is no such program"}},
        {"plumb run -- python train.py --lr 3e-4",
         "plumb run --record runs/exp1 -- torchrun --nproc-per-node 2 train.py",
         "plumb run --server 127.0.0.1:7433 --run exp1 -- accelerate launch train.py"},
        "The trainer is not changed; docs/attach.md names what is watched."}},
      {"rules", {{{0, "listed"}, {2, kUsage}}, {"plumb rules", "plumb rules --all"}, ""}},
      {"explain",
       {{{0, "printed"}, {2, "bad usage, or unknown rule"}},
        {"plumb explain causality/moe-future-leak", "plumb explain moe-future-leak"},
        ""}},
      {"fingerprint",
       {{{0,
          "the arithmetic was determined, a replay agrees, and the contract of --hold is "
          "satisfied"},
         {1, "it could not be determined, or the contract is violated"},
         {2, "bad usage, or the function cannot be called"}},
        {"plumb fingerprint --library libopenblas.so.0 --function sdot --n 4096"},
        ""}},
      {"learn",
       {{{0, "the file was written"},
         {2, "bad usage, an input could not be read completely, or a run is not healthy"}},
        {"plumb learn runs/a runs/b runs/c runs/d runs/e -o invariants.toml",
         "plumb audit runs/new --invariants invariants.toml"},
        ""}},
      {"ledger",
       {{{0, "no finding at or above the level of --fail-on (default error)"},
         {1, "at least one such finding"},
         {2, "bad usage, or the ledger could not be read"}},
        {"plumb ledger ledger.toml", "plumb ledger ledger.toml --format json --output ledger.json"},
        ""}},
      {"diff",
       {{{0, "compared (differences do not change the status)"},
         {1, "with --expect-equal: the checkpoints differ; with --fail-on: B is worse"},
         {2, "bad usage, or a run could not be read"}},
        {"plumb diff runs/exp1 runs/exp2", "plumb diff a.csv b.csv --format json",
         "plumb diff step-1000 step-2000 --before step-500",
         "plumb diff merged.pt iter_0007000 --expect-equal"},
        "Checkpoints: docs/checkpoints.md."}},
      {"certify",
       {{{0, "the same bits; with --baseline: not worse; with --verify: genuine"},
         {1, "something differs; with --baseline: more differs; with --verify: not genuine"},
         {2, "bad usage, an input could not be read, or values could not be compared"}},
        {"plumb certify engine.jsonl trainer.jsonl -o cert.json --key key.pem",
         "plumb certify runs/old runs/new --baseline cert.json",
         "plumb certify --verify cert.json --public-key pub.pem runs/old runs/new"},
        "docs/certify.md"}},
      {"plan",
       {{{0, "planned"}, {2, "bad usage, or the model file could not be read"}},
        {"plumb plan --parameters 100B --layers 80 --sequence 4096 --gpus 64 --batch 4M",
         "plumb plan --model config.json --gpus 512 --batch 4M --format html --output plan.html"},
        ""}},
      {"mcp",
       {{{0, "the client closed the connection"}, {2, kUsage}},
        {"plumb mcp", "plumb mcp --server 127.0.0.1:7433"},
        ""}},
      {"watch",
       {{{0, "--timeout expired, --once printed, or Ctrl-C"}, {2, kNoServer}},
        {"plumb watch", "plumb watch exp1 --level warning",
         "plumb watch --once --format json --server 127.0.0.1:7433"},
        "If no server answers, it waits, and reports this after 5 s; --timeout SECONDS ends the "
        "wait."}},
      {"runs", {{{0, "printed"}, {2, kNoServer}}, {"plumb runs", "plumb runs exp1"}, ""}},
      {"run-edit",
       {{{0, "changed"}, {2, kNoServer}},
        {"plumb run-edit exp1 --tag good --note \"lr 3e-4\"", "plumb run-edit exp1 --undo"},
        ""}},
      {"query",
       {{{0, "success"}, {2, kNoServer}},
        {"plumb query", "plumb query series loss --run exp1 --last 100",
         "plumb query incident '#12' --acknowledge --reason 'on it'"},
        ""}},
      {"capsule",
       {{{0, "written whole"}, {2, "bad usage, no server, unknown finding, or missing ranks"}},
        {"plumb capsule 1f3a --output capsule && plumb audit capsule"},
        ""}},
      {"doctor",
       {{{0, "everything that is required works"},
         {1, "something required does not work (a server is required only with --server)"},
         {2, kUsage}},
        {"plumb doctor", "plumb doctor --server 127.0.0.1:7433"},
        ""}},
      {"spool",
       {{{0, "listed, or everything was delivered"},
         {1, "something could not be delivered; it stays on disk"},
         {2, "bad usage, or not a directory of spools"}},
        {"plumb spool list runs/exp1", "plumb spool send runs/exp1 --server 127.0.0.1:7433"},
        ""}},
      {"completion",
       {{{0, "printed"}, {2, kUsage}},
        {"source <(plumb completion bash)",
         "plumb completion fish > ~/.config/fish/completions/plumb.fish"},
        ""}},
  };
  return *ends;
}

}  // namespace

void AddHelpEnds(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    const auto end = Ends().find(command->get_name());
    if (end != Ends().end()) SetHelpEnd(command, end->second);
  }
  SetHelpEnd(&app, {{{0, "success, no finding"},
                     {1, "findings or differences; see plumb COMMAND --help"},
                     {2, "bad usage, or an input or a server could not be read or reached"}},
                    {"plumb audit runs/exp1", "plumb explain causality/moe-future-leak",
                     "plumb watch --server 127.0.0.1:7433"},
                    "Pages named docs/... are in share/doc/plumbline, next to bin/."});
}

}  // namespace plumbline::audit
