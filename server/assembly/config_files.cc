// Checks the files that a configuration names, and its rules with their settings.
#include "absl/strings/str_cat.h"
#include "rules/engine/active_rules.h"
#include "rules/suppressions.h"
#include "server/access/tls.h"
#include "server/access/token_file.h"
#include "server/settings/client_certificate.h"
#include "server/settings/config.h"
#include "server/settings/redact_key.h"

namespace plumbline::server {
namespace {

void AddWrong(const std::string& key, const absl::Status& status, ConfigMistakes* mistakes) {
  if (!status.ok()) mistakes->Add(key, std::string(status.message()));
}

void CheckRules(const Config& config, ConfigMistakes* mistakes) {
  auto active = rules::SelectRules(config.rules);
  if (!active.ok()) {
    for (const std::string& glob : config.rules) {
      if (!rules::SomeRuleMatches(glob))
        AddWrong("rules.run", rules::SelectRules({glob}).status(), mistakes);
    }
    if (!mistakes->Has("rules.run")) AddWrong("rules.run", active.status(), mistakes);
    active = rules::SelectRules({});  // settings are checked separately
  }
  for (const std::string& setting : config.settings)
    AddWrong("rules.set", rules::ApplySetting(setting, *active), mistakes);
}

}  // namespace

void CheckConfigFiles(const Config& config, ConfigMistakes* mistakes) {
  if (!config.suppressions_file.empty())
    AddWrong("suppressions.file", rules::LoadSuppressions(config.suppressions_file).status(),
             mistakes);
  CheckRules(config, mistakes);
  if (!mistakes->Has("tls")) CheckTlsFiles(config, mistakes);
  if (!mistakes->Has("redact")) AddWrong("redact.key_file", RedactorOf(config).status(), mistakes);
  AddWrong("tls.revoked", RevocationList(config.tls_revoked).Refresh(), mistakes);
  for (size_t i = 0; i < config.access.size(); ++i) {
    const std::string& file = config.access[i].token_file;
    if (file.empty()) continue;
    AddWrong(absl::StrCat("access[", i, "].token_file"), ReadTokenFile(file).status(), mistakes);
  }
}

}  // namespace plumbline::server
