#include "audit/render/finding_json.h"

#include "audit/render/text_util.h"

namespace plumbline::audit {

std::string FindingJson(const v1::Finding& finding) {
  return TerminalSafeJson(FindingValue(finding).dump());
}

std::string VerdictJson(const v1::Verdict& verdict) {
  return TerminalSafeJson(VerdictValue(verdict).dump());
}

}  // namespace plumbline::audit
