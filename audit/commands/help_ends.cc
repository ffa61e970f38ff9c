// Exit statuses and examples at the end of every subcommand's help and manual page.
#include <map>
#include <string>

#include "audit/commands/commands.h"
#include "command_line/ends.h"

namespace plumbline::audit {
namespace {

constexpr const char* kUsage = "bad usage";
constexpr const char* kNoServer = "bad usage, no server answered, or it refused";

const std::map<std::string, HelpEnd>& Ends() {
  static const auto* ends = new std::map<std::string, HelpEnd>{
      {"audit",
       {{{0, "no finding at or above --fail-on, which is error"},
         {1, "there is one"},
         {2, "bad usage, or an input that could not be read whole: what could be is judged"}},
        {"plumb audit runs/exp1", "plumb audit runs/exp1 --format json --output report.json",
         "plumb audit dumps/ --rules 'causality/*' --fail-on warning",
         "plumb audit --server 127.0.0.1:7433 --run exp1",
         "plumb audit train.log --follow --send 127.0.0.1:7433 --run exp1"},
        ""}},
      {"rules", {{{0, "listed"}, {2, kUsage}}, {"plumb rules", "plumb rules --all"}, ""}},
      {"explain",
       {{{0, "printed"}, {2, "bad usage, or there is no such rule"}},
        {"plumb explain causality/moe-future-leak", "plumb explain moe-future-leak"},
        ""}},
      {"fingerprint",
       {{{0, "the arithmetic is named, a replay agrees, and a contract to --hold is kept"},
         {1, "it could not be named, or the contract is not kept"},
         {2, "bad usage, or what is asked for cannot be called"}},
        {"plumb fingerprint --library libopenblas.so.0 --function sdot --n 4096"},
        ""}},
      {"ledger",
       {{{0, "no finding at or above --fail-on, which is error"},
         {1, "there is one"},
         {2, "bad usage, or a ledger that could not be read"}},
        {"plumb ledger ledger.toml", "plumb ledger ledger.toml --format json --output ledger.json"},
        ""}},
      {"diff",
       {{{0, "compared, whatever differs"},
         {1, "--expect-equal, and the checkpoints are not equal; --fail-on, and B is worse"},
         {2, "bad usage, or a run that could not be read"}},
        {"plumb diff runs/exp1 runs/exp2", "plumb diff a.csv b.csv --format json",
         "plumb diff step-1000 step-2000 --before step-500",
         "plumb diff merged.pt iter_0007000 --expect-equal"},
        "Checkpoints: docs/checkpoints.md."}},
      {"plan",
       {{{0, "planned"}, {2, "bad usage, or a model's file that could not be read"}},
        {"plumb plan --parameters 100B --layers 80 --sequence 4096 --gpus 64 --batch 4M",
         "plumb plan --model config.json --gpus 512 --batch 4M --format html --output plan.html"},
        ""}},
      {"mcp",
       {{{0, "the client closed its end"}, {2, kUsage}},
        {"plumb mcp", "plumb mcp --server 127.0.0.1:7433"},
        ""}},
      {"watch",
       {{{0, "--timeout is over, --once has printed, or Ctrl-C"}, {2, kNoServer}},
        {"plumb watch", "plumb watch exp1 --level warning",
         "plumb watch --once --format json --server 127.0.0.1:7433"},
        "Without a server it waits for one, and says so after 5 s; --timeout SECONDS gives up."}},
      {"runs", {{{0, "printed"}, {2, kNoServer}}, {"plumb runs", "plumb runs exp1"}, ""}},
      {"query",
       {{{0, "printed, or done"}, {2, kNoServer}},
        {"plumb query", "plumb query series loss --run exp1 --last 100",
         "plumb query incident '#12' --acknowledge --reason 'on it'"},
        ""}},
      {"capsule",
       {{{0, "written whole"}, {2, "bad usage, no server, no such finding, or ranks are missing"}},
        {"plumb capsule 1f3a --output capsule && plumb audit capsule"},
        ""}},
      {"doctor",
       {{{0, "all that is needed works"},
         {1, "something that is needed does not; without --server no server is needed"},
         {2, kUsage}},
        {"plumb doctor", "plumb doctor --server 127.0.0.1:7433"},
        ""}},
      {"spool",
       {{{0, "listed, or all was delivered"},
         {1, "something could not be delivered, and stays"},
         {2, "bad usage, or no directory of spools"}},
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
  SetHelpEnd(&app, {{{0, "done, and nothing was found"},
                     {1, "something was found; see plumb COMMAND --help"},
                     {2, "bad usage, or something could not be read or reached"}},
                    {"plumb audit runs/exp1", "plumb explain causality/moe-future-leak",
                     "plumb watch --server 127.0.0.1:7433"},
                    "Pages that are named docs/... lie in share/doc/plumbline beside bin/."});
}

}  // namespace plumbline::audit
