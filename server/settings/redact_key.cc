#include "server/settings/redact_key.h"

#include <string>

#include "absl/strings/ascii.h"
#include "base/private_file.h"

namespace plumbline::server {

absl::StatusOr<std::shared_ptr<const transport::Redactor>> RedactorOf(const Config& config) {
  if (!config.redact_ids) return nullptr;
  absl::StatusOr<std::string> key = ReadPrivateFile(config.redact_key_file);
  if (!key.ok()) return key.status();
  absl::StripAsciiWhitespace(&*key);
  if (auto s = transport::CheckRedactSecret(config.redact_key_file, *key); !s.ok()) return s;
  return std::make_shared<const transport::Redactor>(*key);
}

}  // namespace plumbline::server
