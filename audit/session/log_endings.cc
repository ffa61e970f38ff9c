#include "audit/session/log_endings.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "audit/readers/trainer_log/log_ending.h"
#include "audit/readers/trainer_log/scaler_sentences.h"

namespace plumbline::audit {
namespace {

constexpr std::streamoff kTail = 256 << 10;  // bytes at the end of a log

std::string TailOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string tail((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  // A zero byte means compressed or binary data.
  return tail.find('\0') == std::string::npos ? tail : "";
}

struct EndingWords {
  const char* title;
  const char* cause;
  const char* fix;
};

std::string RanksText(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]);
  return ranks.empty() ? "no rank" : text;
}

EndingWords EndingWordsOf(const LogEnding& ending) {
  if (ending.type == "exit status")
    return {"the run ended with an exit status that is not 0", "exit-status",
            "Find the first error above it, and check the logs of the other ranks."};
  if (ending.type == "report")
    return {"the trainer reports a value that is not finite", "non-finite-loss",
            "Find the step in which the loss or a metric became non-finite first. Lower the "
            "learning rate, clip the gradient, and check the inputs."};
  switch (ending.kind) {
    case LogEnding::Kind::kOutOfMemory:
      return {
          "the run ended: GPU memory ran out", "out-of-memory",
          "Use a smaller micro-batch with more accumulation, activation checkpointing, or shard "
          "the optimizer; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation."};
    case LogEnding::Kind::kTimeout:
      return {"the run ended: a collective timed out", "collective-timeout",
              "Check the ranks that did not join: their last log lines, their host (dmesg), a "
              "branch that only they take. TORCH_NCCL_TRACE_BUFFER_SIZE=2000 writes dumps that "
              "plumb audit reads."};
    case LogEnding::Kind::kKilled:
      return {"the run was killed", "signal",
              "Check the host: dmesg for the out-of-memory killer, the scheduler's log for a limit "
              "of memory or time."};
    case LogEnding::Kind::kCrash:
      return {"the run crashed", "signal",
              "Run it again with CUDA_LAUNCH_BLOCKING=1 and PYTHONFAULTHANDLER=1, which show the "
              "call. compute-sanitizer finds illegal accesses. Check the host's dmesg."};
    case LogEnding::Kind::kNotFinite:
      return {"the trainer stopped: its loss is not finite", "non-finite-loss",
              "Find the step in which the loss, the gradient norm or a batch became non-finite "
              "first. Lower the learning rate, clip the gradient, and check the inputs."};
    case LogEnding::Kind::kCancelled:
      return {"the run was stopped by a signal", "terminated",
              "Request more time from the scheduler, save checkpoints more often, and continue "
              "from the last one."};
    default:
      return {"the run ended by an exception", "exception",
              "Read the traceback from its first exception; the others follow from it."};
  }
}

// Like find, but searches for the last letter of the word, which is rare in logs, because a whole
// log is searched.
size_t FindByEnd(std::string_view text, std::string_view word, size_t from) {
  size_t at = from + word.size() - 1;
  while (at < text.size()) {
    const void* found = std::memchr(text.data() + at, word.back(), text.size() - at);
    if (found == nullptr) return std::string_view::npos;
    at = static_cast<size_t>(static_cast<const char*>(found) - text.data()) + 1;
    if (text.substr(0, at).ends_with(word)) return at - word.size();
  }
  return std::string_view::npos;
}

// Reads every line of a text file. A line longer than a block is split.
ScalerSentences SentencesOf(const std::string& path, uint64_t* bytes) {
  constexpr size_t kBlock = 1 << 20;
  ScalerSentences stated;
  std::ifstream in(path, std::ios::binary);
  std::string block(kBlock, '\0');
  size_t kept = 0;
  *bytes = 0;
  while (in) {
    in.read(block.data() + kept, static_cast<std::streamsize>(kBlock - kept));
    const size_t size = kept + static_cast<size_t>(in.gcount());
    const std::string_view text(block.data(), size);
    size_t end = text.rfind('\n');
    if (end == std::string_view::npos || !in) end = size;
    size_t lower = FindByEnd(text, "erflow", 0), upper = FindByEnd(text, "ERFLOW", 0);
    for (size_t at = std::min(lower, upper); at < end; at = std::min(lower, upper)) {
      const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
      const size_t stop = std::min(text.find('\n', at), end);
      stated.Take(text.substr(begin, stop - begin), *bytes + begin);
      if (lower < stop) lower = FindByEnd(text, "erflow", stop);
      if (upper < stop) upper = FindByEnd(text, "ERFLOW", stop);
    }
    *bytes += std::min(end + 1, size);
    kept = size - std::min(end + 1, size);
    block.replace(0, kept, block, size - kept, kept);
  }
  return stated;
}

}  // namespace

std::optional<v1::Verdict> ScalerVerdict(const std::string& path, int64_t last_step) {
  uint64_t bytes = 0;
  const ScalerSentences stated = SentencesOf(path, &bytes);
  if (stated.events() == 0) return std::nullopt;
  const bool storm = stated.storm(bytes);
  analysis::FindingBuilder found(storm ? v1::LEVEL_ERROR : v1::LEVEL_NOTE, v1::STRENGTH_PROVED);
  found.Title(storm ? "the loss scale falls until the end" : "the loss scaler skipped steps")
      .Explain(absl::StrCat(
          "The log states ", stated.events(), stated.events() == 1 ? " overflow" : " overflows",
          " that the loss scaler skipped, up to step ", last_step, ": the scale went from ",
          stated.first(), " to ", stated.last(),
          storm ? absl::StrCat(", by ", stated.falls(),
                               " consecutive falls up to the end: no step is applied.")
                : "."))
      .Cause(storm ? "overflow-storm" : "skipped-step", storm ? 0.9 : 0.8)
      .Measured("overflows", static_cast<double>(stated.events()), "steps")
      .Threshold(10, "consecutive falls, to the end of the log or to a scale of 1")
      .Samples(stated.events())
      .Witness("scale", stated.last())
      .Fix(storm ? "Train in bf16, or find the tensor that overflows (precision/non-finite names "
                   "the first one). Check the inputs, and lower the learning rate."
                 : "Do nothing while it is rare.");
  analysis::SetPlace(found.verdict(), "", "loss scaler", last_step, last_step,
                     std::vector<uint32_t>{});
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  analysis::Put(details, "series", "loss scaler");
  analysis::Put(details, "step", static_cast<double>(last_step));
  analysis::Put(details, "kind", storm ? "halvings" : "skipped");
  return found.Take();
}

std::optional<v1::Verdict> EndingVerdict(const std::string& path, int64_t last_step) {
  const std::optional<LogEnding> ending = EndingOf(TailOf(path));
  if (!ending) return std::nullopt;
  const bool by_hand = ending->type == "KeyboardInterrupt";
  const EndingWords words = EndingWordsOf(*ending);
  std::string text =
      absl::StrCat("The log ends, after step ", last_step, ", with: ", ending->message);
  if (!text.ends_with('.')) text += ".";
  if (ending->kind == LogEnding::Kind::kTimeout) {
    absl::StrAppend(&text, " Collective ", ending->sequence,
                    ending->op.empty() ? "" : " (" + ending->op + ")", ": ",
                    RanksText(ending->waiting), " waited");
    absl::StrAppend(&text, ending->missing.empty()
                               ? "; the missing rank is not known."
                               : "; " + RanksText(ending->missing) + " did not join it.");
  }
  const bool requested = ending->kind == LogEnding::Kind::kCancelled ||
                         ending->type == "exit status" || ending->type == "report";
  analysis::FindingBuilder found(by_hand     ? v1::LEVEL_NOTE
                                 : requested ? v1::LEVEL_WARNING
                                             : v1::LEVEL_ERROR,
                                 v1::STRENGTH_PROVED);
  found.Title(by_hand ? "the run was interrupted by hand" : words.title)
      .Explain(text)
      .Cause(by_hand ? "interrupted" : words.cause, 1)
      .Measured("last step", static_cast<double>(last_step), "step")
      .Threshold(0, "a complete log ends with training")
      .Samples(1)
      .Witness("end", ending->message)
      .Fix(by_hand ? "If this was intended, do nothing." : words.fix);
  std::vector<uint32_t> ranks = ending->missing;
  if (ranks.empty() && ending->rank) ranks.push_back(*ending->rank);
  analysis::SetPlace(found.verdict(), "", "process", last_step, last_step, ranks);
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  analysis::Put(details, "kind", by_hand ? "interrupted" : words.cause);
  analysis::Put(details, "type", ending->type);
  analysis::Put(details, "last_step", static_cast<double>(last_step));
  if (ending->kind == LogEnding::Kind::kTimeout) {
    analysis::Put(details, "sequence", static_cast<double>(ending->sequence));
    found.Witness("op", ending->op);
  }
  return found.Take();
}

}  // namespace plumbline::audit
