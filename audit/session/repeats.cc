#include "audit/session/repeats.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string_view>
#include <tuple>

#include "audit/readers/scalars/scalar_reader.h"
#include "audit/session/series_collector.h"

namespace plumbline::audit {
namespace {

// The writer of a run: one logger, whose files are in and below a folder.
struct Logger {
  size_t format = 0;  // index in ScalarReaders
  std::string folder, path;
};

// Returns true for "checkpoint-500", "global_step_20", "step_100": folders of one step, not of a
// run.
bool IsOfOneStep(std::string_view name) {
  for (const std::string_view word : {"checkpoint", "global_step", "step", "iter", "epoch"}) {
    if (!name.starts_with(word)) continue;
    std::string_view rest = name.substr(word.size());
    if (!rest.empty() && (rest.front() == '-' || rest.front() == '_')) rest.remove_prefix(1);
    return !rest.empty() && rest.find_first_not_of("0123456789") == rest.npos;
  }
  return false;
}

std::string FolderOfFile(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error);
  if (error) return path;
  auto folder = whole.lexically_normal().parent_path();
  if (IsOfOneStep(folder.filename().string())) folder = folder.parent_path();
  return folder.string();
}

// Returns the logger of each run. A run of several formats has no single logger.
std::map<std::string, Logger> LoggersOf(const std::deque<InputReport>& inputs) {
  std::map<std::string, size_t> formats;
  for (const Reader* reader : ScalarReaders())
    formats.emplace(std::string(reader->format()), formats.size());
  std::map<std::string, Logger> loggers;
  for (const InputReport& input : inputs) {
    const auto format = formats.find(input.format);
    if (format == formats.end()) continue;
    for (const std::string& run : input.runs) {
      const Logger logger{format->second, FolderOfFile(input.path), input.path};
      const auto [known, fresh] = loggers.emplace(run, logger);
      if (!fresh && logger.folder.size() < known->second.folder.size()) known->second = logger;
    }
  }
  return loggers;
}

bool LiesWithin(const std::string& inner, const std::string& outer) {
  return inner == outer || (inner.starts_with(outer) && inner[outer.size()] == '/');
}

bool OfOneFolder(const Logger& a, const Logger& b) {
  return LiesWithin(a.folder, b.folder) || LiesWithin(b.folder, a.folder);
}

bool OfOneRun(const Logger& a, const Logger& b) {
  return a.format != b.format && OfOneFolder(a, b);
}

// Returns the last finite value before a NaN. If the finding has none, returns NaN.
double ValueBefore(const v1::Finding& finding) {
  const auto& fields = finding.witness().fields();
  const auto value = fields.find("value_before");
  return value == fields.end() ? NAN : value->second.number_value();
}

// Returns true if the measured values, and the values before a NaN, are equal up to the rounding of
// loggers.
bool MeasuredAlike(const v1::Finding& a, const v1::Finding& b) {
  constexpr double kRounding = 0.02, kDigits = 0.005;
  const double before = ValueBefore(a), other = ValueBefore(b);
  if (std::fabs(before - other) > kDigits * std::max(std::fabs(before), std::fabs(other)))
    return false;
  const double x = a.measured().value(), y = b.measured().value();
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y);
  return x == y || std::fabs(x - y) <= kRounding * std::max(std::fabs(x), std::fabs(y));
}

using CauseKey = std::tuple<std::string, std::string, int64_t, SeriesRole, uint32_t>;

CauseKey KeyOf(const v1::Finding& finding, const SeriesRoles& roles) {
  const v1::FindingSite& site = finding.site();
  const std::string& op = site.op();
  const std::string name = site.layer().empty() ? op : site.layer() + "/" + op;
  return {finding.rule(), finding.cause().id(), OnsetOf(finding), roles.Of(name),
          site.ranks().empty() ? 0 : site.ranks(0)};
}

// ---- weights that follow a loss, or precede it -----------------------------------------------

// Returns the folders of checkpoints, by run.
std::map<std::string, Logger> CheckpointsOf(const std::deque<InputReport>& inputs) {
  std::map<std::string, Logger> checkpoints;
  for (const InputReport& input : inputs) {
    if (input.format != "checkpoint") continue;
    for (const std::string& run : input.runs)
      checkpoints.emplace(run, Logger{0, FolderOfFile(input.path), input.path});
  }
  return checkpoints;
}

bool IsLostWeight(const v1::Finding& f) {
  return f.rule() == "precision/non-finite" && f.site().op() == "weight";
}
bool IsLostLoss(const v1::Finding& f) { return f.rule() == "health/loss-non-finite"; }

std::string NoteOnWeights(const v1::Finding& weight, bool follows) {
  const std::string& why = weight.explanation();
  const size_t history = why.find("It was last observed");
  return "precision/non-finite of step " + std::to_string(OnsetOf(weight)) +
         (follows ? " is not repeated: weights are NaN or infinite because the loss is"
                  : " covers later losses, which are not repeated") +
         (history == why.npos ? "" : ". " + why.substr(history, why.find(". ", history) - history));
}

// NaN in the weights of later checkpoints is caused by a NaN loss, and a NaN loss after such
// weights by them. The earlier finding represents both.
void FindConsequences(const std::map<std::string, Logger>& checkpoints,
                      const std::map<std::string, Logger>& loggers,
                      const std::vector<const v1::Finding*>& findings, Repeats* repeats,
                      std::vector<std::string>* notes) {
  for (const v1::Finding* weight : findings) {
    const auto kept = checkpoints.find(weight->site().run());
    if (kept == checkpoints.end() || !IsLostWeight(*weight)) continue;
    std::vector<const v1::Finding*> losses;
    for (const v1::Finding* loss : findings) {
      const auto logger = loggers.find(loss->site().run());
      if (logger == loggers.end() || !IsLostLoss(*loss)) continue;
      if (OfOneFolder(kept->second, logger->second)) losses.push_back(loss);
    }
    if (losses.empty()) continue;
    const bool follows = std::any_of(losses.begin(), losses.end(), [&](const v1::Finding* loss) {
      return OnsetOf(*loss) <= OnsetOf(*weight);
    });
    notes->push_back(NoteOnWeights(*weight, follows));
    if (follows) repeats->fingerprints.insert(weight->fingerprint());
    for (const v1::Finding* loss : losses) {
      if (!follows) repeats->fingerprints.insert(loss->fingerprint());
    }
  }
}

bool HasCause(const v1::Finding& f, std::string_view rule, std::string_view cause) {
  return f.rule() == rule && f.cause().id() == cause;
}

// Adapters that are not trained leave the loss flat and have no gradient.
void FindUntrained(const std::map<std::string, Logger>& checkpoints,
                   const std::map<std::string, Logger>& loggers,
                   const std::vector<const v1::Finding*>& findings, Repeats* repeats,
                   std::vector<std::string>* notes) {
  std::set<std::string> rules;
  for (const v1::Finding* weight : findings) {
    const auto kept = checkpoints.find(weight->site().run());
    if (kept == checkpoints.end() ||
        !HasCause(*weight, "health/unchanged-tensor", "adapters-not-trained"))
      continue;
    for (const v1::Finding* f : findings) {
      const auto logger = loggers.find(f->site().run());
      if (logger == loggers.end() || !OfOneFolder(logger->second, kept->second)) continue;
      if (!HasCause(*f, "health/gradient-vanish", "no-gradient") &&
          !HasCause(*f, "health/not-learning", "flat-from-the-beginning") &&
          !HasCause(*f, "health/not-learning", "no-update"))
        continue;
      repeats->fingerprints.insert(f->fingerprint());
      rules.insert(f->rule());
    }
  }
  std::string names;
  for (const std::string& rule : rules) names += (names.empty() ? "" : ", ") + rule;
  if (!names.empty())
    notes->push_back(names + " not repeated: the adapters of the checkpoints are not trained");
}

std::string NoteOnRepeats(size_t count, const std::set<std::string>& paths) {
  constexpr size_t kMostPaths = 4;
  std::string names;
  size_t named = 0;
  for (const std::string& path : paths) {
    if (++named > kMostPaths) break;
    names += (names.empty() ? "" : ", ") + path;
  }
  if (paths.size() > kMostPaths) names += ", ...";
  return (count == 1 ? "1 finding is" : std::to_string(count) + " findings are") +
         (" not repeated: other loggers of the run have the same series (" + names + ")");
}

}  // namespace

Repeats FindRepeats(const std::deque<InputReport>& inputs,
                    const std::vector<const v1::Finding*>& findings, const SeriesRoles& roles) {
  Repeats repeats;
  const std::map<std::string, Logger> loggers = LoggersOf(inputs);
  std::vector<std::string> notes;
  const std::map<std::string, Logger> checkpoints = CheckpointsOf(inputs);
  FindConsequences(checkpoints, loggers, findings, &repeats, &notes);
  FindUntrained(checkpoints, loggers, findings, &repeats, &notes);
  struct Kept {
    const v1::Finding* finding;
    const Logger* logger;
  };
  std::vector<Kept> order;
  for (const v1::Finding* finding : findings) {
    const auto logger = loggers.find(finding->site().run());
    if (logger != loggers.end() && !finding->rule().starts_with("meta/"))
      order.push_back({finding, &logger->second});
  }
  std::stable_sort(order.begin(), order.end(), [](const Kept& a, const Kept& b) {
    return a.logger->format < b.logger->format;
  });
  std::map<CauseKey, std::vector<Kept>> kept;
  std::set<std::string> paths;
  size_t count = 0;
  for (const Kept& one : order) {
    std::vector<Kept>& same = kept[KeyOf(*one.finding, roles)];
    const bool repeated = std::any_of(same.begin(), same.end(), [&](const Kept& other) {
      return OfOneRun(*one.logger, *other.logger) && MeasuredAlike(*one.finding, *other.finding);
    });
    if (!repeated) {
      same.push_back(one);
      continue;
    }
    ++count;
    repeats.fingerprints.insert(one.finding->fingerprint());
    paths.insert(one.logger->path);
  }
  if (!paths.empty()) notes.push_back(NoteOnRepeats(count, paths));
  for (const std::string& note : notes) repeats.note += (repeats.note.empty() ? "" : "; ") + note;
  return repeats;
}

}  // namespace plumbline::audit
