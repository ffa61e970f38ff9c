#include "tests/fuzz/audit_bytes.h"

#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "audit/render/html_report.h"
#include "audit/render/json_report.h"
#include "audit/render/sarif_report.h"
#include "audit/render/text_report.h"
#include "audit/session/audit.h"

namespace plumbline::audit {
namespace {

void Require(bool kept, const std::string& promise) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
  std::abort();
}

bool WriteAll(int fd, const uint8_t* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written <= 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

void AuditBytes(const uint8_t* data, size_t size, const char* format) {
  google::protobuf::SetLogHandler(nullptr);
  const int fd = memfd_create("input", MFD_CLOEXEC);
  Require(fd >= 0 && WriteAll(fd, data, size), "an input file");
  AuditOptions options;
  options.paths = {"/proc/self/fd/" + std::to_string(fd)};
  options.forced = FindReader(format);
  options.collect_series = true;
  const auto result = RunAudit(options, nullptr);
  close(fd);
  Require(result.ok(), "wrong inputs are no wrong usage");
  const auto json = nlohmann::json::parse(RenderJson(*result), nullptr, false);
  Require(!json.is_discarded(), "the report is JSON");
  for (const auto& problem : json["inputs"][0]["problems"]) {
    const std::string text = problem;
    Require(
        text.find(": byte ") != std::string::npos && text.find(": expected ") != std::string::npos,
        text);
  }
  Require(!RenderText(*result, TextStyle{}).empty(), "the text is not empty");
  Require(!RenderHtml(*result).empty(), "the page is not empty");
  const auto sarif = nlohmann::json::parse(RenderSarif(*result, 0, "/"), nullptr, false);
  Require(!sarif.is_discarded(), "the SARIF report is JSON");
}

}  // namespace plumbline::audit
