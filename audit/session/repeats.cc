#include "audit/session/repeats.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <tuple>

#include "audit/readers/scalars/scalar_reader.h"
#include "audit/session/series_collector.h"

namespace plumbline::audit {
namespace {

// What wrote a run: one logger, whose files lie in and below a folder.
struct Logger {
  size_t format = 0;  // place in ScalarReaders
  std::string folder, path;
};

std::string FolderOfFile(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().parent_path().string();
}

// By run. A run of several formats is no logger of its own.
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

bool OfOneRun(const Logger& a, const Logger& b) {
  return a.format != b.format && (LiesWithin(a.folder, b.folder) || LiesWithin(b.folder, a.folder));
}

// Loggers round differently.
bool MeasuredAlike(const v1::Finding& a, const v1::Finding& b) {
  constexpr double kRounding = 0.02;
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
         (" not repeated: other loggers of the run hold the same series (" + names + ")");
}

}  // namespace

Repeats FindRepeats(const std::deque<InputReport>& inputs,
                    const std::vector<const v1::Finding*>& findings, const SeriesRoles& roles) {
  Repeats repeats;
  const std::map<std::string, Logger> loggers = LoggersOf(inputs);
  if (loggers.size() < 2) return repeats;
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
  for (const Kept& one : order) {
    std::vector<Kept>& same = kept[KeyOf(*one.finding, roles)];
    const bool repeated = std::any_of(same.begin(), same.end(), [&](const Kept& other) {
      return OfOneRun(*one.logger, *other.logger) && MeasuredAlike(*one.finding, *other.finding);
    });
    if (!repeated) {
      same.push_back(one);
      continue;
    }
    repeats.fingerprints.insert(one.finding->fingerprint());
    paths.insert(one.logger->path);
  }
  if (!paths.empty()) repeats.note = NoteOnRepeats(repeats.fingerprints.size(), paths);
  return repeats;
}

}  // namespace plumbline::audit
