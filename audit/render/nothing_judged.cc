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
  if (result.inputs.empty()) return "nothing was judged: the folder holds no file";
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
    return "nothing was judged: no rule knows what these series are: " + ReasonNames(series) +
           "; --map FILE with [series] \"NAME\" = \"loss\" states it (docs/scalars.md)";
  }
  if (read == 0 && unknown.empty() && spooled > 0)
    return "nothing was judged: an audit reads a run record (record= of init), and this is a spool "
           "for a server";
  const auto aim = std::find_if(unknown.begin(), unknown.end(), IsOfAim);
  if (read == 0 && aim != unknown.end()) return "nothing was judged: found " + RefusalOfAim(*aim);
  if (read == 0) {
    return "nothing was judged: " + Plural(unknown.size(), "file") +
           " of no format that this version reads: " + ReasonNames(unknown);
  }
  return "nothing was judged: " + Plural(read, "file") +
         " read, and no rule judges any of what they hold (--format json lists it)";
}

}  // namespace plumbline::audit
