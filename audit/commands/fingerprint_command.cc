// plumb fingerprint: finds the order and the arithmetic of a library's sum, dot or matrix product.
//
// The library runs in a child process: if it crashes, plumb reports that and continues.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/sums/sums.h"
#include "audit/commands/blas_target.h"
#include "audit/commands/commands.h"
#include "base/files/whole_file.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

struct FingerprintArguments {
  FunctionRequest function;
  sums::FingerprintOptions options;
  std::string format = "text";
  std::string output;
  std::string hold;  // an earlier contract; empty: none
  bool tree = false;
};

constexpr int kOutlineLines = 200;

std::string Json(const sums::Fingerprint& f) {
  nlohmann::ordered_json tests = nlohmann::ordered_json::array();
  for (const sums::TestResult& t : f.tests) {
    tests.push_back({{"id", t.id}, {"name", t.name}, {"result", t.result}});
  }
  nlohmann::ordered_json rivals = nlohmann::ordered_json::array();
  for (const sums::Scored& r : f.rivals)
    rivals.push_back({{"words", r.words}, {"matches", r.matches}});
  const bool verified = f.verdict == sums::Verdict::kVerified;
  nlohmann::ordered_json json = {{"schema", "plumbline.fingerprint/1"},
                                 {"name", f.name},
                                 {"library", f.library},
                                 {"kind", sums::KindName(f.kind)},
                                 {"n", f.n},
                                 {"input", DTypeName(f.input)},
                                 {"output", DTypeName(f.output)},
                                 {"verdict", sums::VerdictName(f.verdict)},
                                 {"evidence", f.evidence},
                                 {"order", f.order},
                                 {"tree", f.tree_hash},
                                 {"arithmetic", verified ? f.arithmetic : ""},
                                 {"also", f.also},
                                 {"matches", f.matches},
                                 {"samples", f.samples},
                                 {"rivals", rivals},
                                 {"tests", tests},
                                 {"calls", f.calls},
                                 {"tree_calls", f.tree_calls}};
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<sums::Contract> ReadContract(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!text.ok()) return text.status();
  return sums::ParseContract(*text, path);
}

// Runs in the child. Returns exit status 0 if verified, 1 if not, 2 if nothing could be measured.
int Take(const FingerprintArguments& arguments) {
  absl::StatusOr<sums::Contract> held = sums::Contract();
  if (!arguments.hold.empty()) held = ReadContract(arguments.hold);
  if (!held.ok()) return Fail(std::string(held.status().message()));
  const auto target = FunctionTarget(arguments.function);
  if (!target.ok()) return Fail(std::string(target.status().message()));
  const auto found = sums::TakeFingerprint(*target, arguments.options);
  if (!found.ok()) return Fail(std::string(found.status().message()));
  if (!arguments.output.empty() &&
      !WriteOutput(arguments.output, sums::ContractToml(sums::ContractOf(*found)))) {
    return kExitError;
  }
  std::string text = arguments.format == "json" ? Json(*found) : sums::FingerprintText(*found);
  if (arguments.tree) text += sums::TreeAsOutline(found->model.tree, kOutlineLines);
  std::vector<std::string> broken;
  if (!arguments.hold.empty()) broken = sums::ContractDifferences(*held, sums::ContractOf(*found));
  if (!WriteOutput("", text)) return kExitError;
  for (const std::string& line : broken)
    std::fprintf(stderr, "plumb: %s is violated: %s\n", arguments.hold.c_str(), line.c_str());
  if (!broken.empty()) return kExitFindings;
  return found->verdict == sums::Verdict::kVerified ? kExitClean : kExitFindings;
}

int RunFingerprint(const FingerprintArguments& arguments) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0)
    return Fail(std::string("expected a child process, found: ") + std::strerror(errno));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int status = Take(arguments);
    std::fflush(nullptr);
    _exit(status);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return Fail(std::string("waitpid: ") + std::strerror(errno));
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return Fail(arguments.function.library + ": " + arguments.function.function +
              ": expected results, found a crash: " + strsignal(WTERMSIG(status)));
}

}  // namespace

void RegisterFingerprint(CLI::App& app, int* status) {
  auto arguments = std::make_shared<FingerprintArguments>();
  FunctionRequest& function = arguments->function;
  CLI::App* command = app.add_subcommand(
      "fingerprint",
      "Determines the order and arithmetic of a library's sum, dot or matrix product");
  command->add_option("--library", function.library, "Shared library, a path or a name")
      ->type_name("FILE")
      ->required();
  command
      ->add_option(
          "--function", function.function,
          "sdot, ddot, dsdot, sgemv, dgemv, sgemm or dgemm (also cblas_NAME, NAME_), or any "
          "symbol with --kind")
      ->type_name("NAME")
      ->required();
  command->add_option("--kind", function.kind, "Signature T f(const T* a[, const T* b], size_t n)")
      ->check(OneOf({"sum", "dot"}));
  command->add_option("--dtype", function.dtype, "T of that signature: f64, f32, f16, bf16")
      ->default_val("f32");
  const auto size = Between(2, 1 << 20);
  command->add_option("--n", function.n, "Addends of a sum or dot; columns of a product")
      ->check(size);
  command->add_option("--m", function.rows, "Rows of a product")
      ->check(Between(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--k", function.inner, "Addends of a product")->check(size);
  command->add_option("--output", arguments->output, "Write the contract to FILE")
      ->type_name("FILE");
  command
      ->add_option("--hold", arguments->hold,
                   "Compare with an earlier contract; exit status 1 if order or arithmetic differ")
      ->type_name("FILE");
  command->add_option("--format", arguments->format, "Output format")
      ->check(OneOf({"text", "json"}))
      ->capture_default_str();
  command->add_flag("--tree", arguments->tree, "Also print the tree as an outline");
  command->add_option("--seed", arguments->options.seed, "Seed of pivots and random data")
      ->capture_default_str();
  command->add_option("--samples", arguments->options.samples, "Number of random inputs to replay")
      ->check(Between(sums::kDistributions, 100000))
      ->capture_default_str();
  command->callback([arguments, status] {
    FunctionRequest& request = arguments->function;
    // If --k is given, it is the number of addends, and --n the number of columns.
    if (request.inner > 0) request.columns = std::min(request.n, 4096);
    if (request.inner > 0 && request.n == FunctionRequest().n) request.columns = 8;
    *status = RunFingerprint(*arguments);
  });
}

}  // namespace plumbline::audit
