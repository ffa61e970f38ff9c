#include "audit/commands/diff_checkpoints.h"

#include <unistd.h>

#include <memory>

#include "audit/checkpoints/changes.h"
#include "audit/checkpoints/equality.h"
#include "audit/commands/commands.h"
#include "audit/commands/progress_line.h"

namespace plumbline::audit {
namespace {

constexpr size_t kSpectra = 8;

// Prints problems that are errors, as plumb audit does. Returns true if the side failed.
bool ReportProblems(const CheckpointSide& side) {
  for (const InputReport& input : side.inputs.reports) {
    for (const Problem& problem : input.problems) {
      if (problem.error) Fail(input.Line(problem));
    }
  }
  return side.failed();
}

// Shows on a terminal how many tensors of A are done.
class TensorProgress {
 public:
  TensorProgress(const CheckpointSide& side, bool quiet) : side_(side), line_(quiet) {
    for (const ComparedTensor& tensor : side.tensors) progress_.bytes += BytesOf(tensor);
    progress_.files = side.ranks.size();
  }
  void At(size_t done) {
    for (; counted_ < done; ++counted_) progress_.bytes_done += BytesOf(side_.tensors[counted_]);
    line_.Show(progress_);
  }

 private:
  static uint64_t BytesOf(const ComparedTensor& tensor) {
    uint64_t bytes = 0;
    for (const TensorPart& part : tensor.parts) bytes += part.place.bytes();
    return bytes;
  }

  const CheckpointSide& side_;
  AuditProgress progress_;
  size_t counted_ = 0;
  ProgressLine line_;
};

}  // namespace

int DiffCheckpoints(const DiffCheckpointsArguments& arguments) {
  NamesMap names;
  if (!arguments.map.empty()) {
    absl::StatusOr<NamesMap> read = ReadNamesMap(arguments.map);
    if (!read.ok()) return Fail("--map: " + std::string(read.status().message()));
    names = *std::move(read);
  }
  auto a = ReadCheckpointSide(arguments.a);
  if (!a.ok()) return Fail(std::string(a.status().message()));
  auto b = ReadCheckpointSide(arguments.b);
  if (!b.ok()) return Fail(std::string(b.status().message()));
  std::unique_ptr<CheckpointSide> before;
  if (!arguments.before.empty()) {
    auto read = ReadCheckpointSide(arguments.before);
    if (!read.ok()) return Fail("--before: " + std::string(read.status().message()));
    before = *std::move(read);
  }
  const bool failed_a = ReportProblems(**a), failed_b = ReportProblems(**b);
  const bool failed = failed_a || failed_b;
  const bool json = arguments.format == "json";
  std::string text;
  bool equal = true, open = false;  // open: some tensors could not be compared
  {
    TensorProgress progress(**a, arguments.quiet);
    const auto at = [&](size_t done) { progress.At(done); };
    if (arguments.expect_equal) {
      auto result = ExpectEqual(**a, **b, names, at);
      if (!result.ok()) return Fail(std::string(result.status().message()));
      if (failed) result->unread.push_back("the problems of the files");
      equal = result->equal();
      open = result->unequal.empty() && !result->unread.empty();
      if (equal && result->tensors == 0 && (*a)->tensors.size() + (*b)->tensors.size() > 0)
        return Fail("expected two checkpoints with tensors in common, found none");
      text = json ? EqualityJson(**a, **b, *result) : EqualityText(**a, **b, *result);
    } else {
      const auto result = CompareCheckpoints(**a, **b, before.get(), names, kSpectra, at);
      if (!result.ok()) return Fail(std::string(result.status().message()));
      if (!result->compared())
        return Fail("expected two checkpoints with tensors in common, found none");
      const TextStyle style = arguments.output.empty() ? StyleFor(STDOUT_FILENO) : TextStyle{};
      text = json ? ChangesJson(**a, **b, *result) : ChangesText(**a, **b, *result, style);
    }
  }
  if (!WriteOutput(arguments.output, text) || failed || open) return kExitError;
  return equal ? kExitClean : kExitFindings;
}

}  // namespace plumbline::audit
