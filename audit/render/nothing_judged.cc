#include "audit/render/nothing_judged.h"

#include <algorithm>
#include <vector>

#include "audit/render/text_util.h"
#include "audit/session/refusals.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostReasonNames = 6;

std::string ReasonNames(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < kMostReasonNames; ++i)
    out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMostReasonNames)
    out += " and " + std::to_string(names.size() - kMostReasonNames) + " more";
  return out;
}

}  // namespace

std::string WhyNothingWasJudged(const AuditResult& result) {
  if (result.inputs.empty()) return "nothing was judged: the folder contains no file";
  if (result.inputs_failed()) return "nothing was judged: see the refused inputs";
  std::vector<std::string> series, unknown;
  size_t read = 0, spooled = 0;
  for (const InputReport& input : result.inputs) {
    for (const SeriesSeen& seen : input.series) series.push_back(seen.name);
    if (input.of_spool) {
      ++spooled;
    } else if (input.format == "unknown") {
      unknown.push_back(input.path);
    } else {
      ++read;
    }
  }
  if (!series.empty()) {
    return "nothing was judged: these series have unknown names: " + ReasonNames(series) +
           "; declare their role with --map FILE, [series] \"NAME\" = \"loss\" (docs/scalars.md)";
  }
  if (read == 0 && unknown.empty() && spooled > 0)
    return "nothing was judged: this is a spool for a server; an audit reads a run record (record= "
           "of init)";
  const auto aim = std::find_if(unknown.begin(), unknown.end(), IsOfAim);
  if (read == 0 && aim != unknown.end()) return "nothing was judged: found " + RefusalOfAim(*aim);
  if (read == 0) {
    return "nothing was judged: " + Plural(unknown.size(), "file") +
           " with an unknown format: " + ReasonNames(unknown);
  }
  return "nothing was judged: " + Plural(read, "file") +
         " read, but no rule judges their contents (--format json lists them)";
}

}  // namespace plumbline::audit
