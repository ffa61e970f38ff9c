#include "server/web/web_service.h"

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/http/same_origin.h"
#include "server/web/host_check.h"
#include "server/web/page_assets.h"

namespace plumbline::server {
namespace {

constexpr std::string_view kApi = "/api/v1/";
constexpr size_t kMostUpdateBytes = 16 << 10;

// Allows no script, style or picture from elsewhere, no frames, and no requests to other servers.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kFailedPrecondition:
      return 413;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 503;
    default:
      return 500;
  }
}

std::string Dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

WebAnswer OfJson(const Json& json) {
  WebAnswer answer;
  answer.body = Dumped(json);
  return answer;
}

WebAnswer Failed(const absl::Status& status) {
  WebAnswer answer = OfJson({{"error", std::string(status.message())}});
  answer.status = HttpStatusOf(status);
  return answer;
}

WebAnswer OfResult(const absl::StatusOr<Json>& result) {
  return result.ok() ? OfJson(*result) : Failed(result.status());
}

WebAnswer OfCapsule(absl::StatusOr<std::pair<std::string, std::string>> file) {
  if (!file.ok()) return Failed(file.status());
  WebAnswer answer;
  answer.type = "application/x-tar";
  answer.headers = {
      {"Content-Disposition", absl::StrCat("attachment; filename=\"", file->first, "\"")}};
  answer.body = std::move(file->second);
  return answer;
}

int HexOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

std::string Decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = i + 2 < text.size() ? HexOf(text[i + 1]) : -1;
    const int low = high < 0 ? -1 : HexOf(text[i + 2]);
    if (text[i] == '%' && low >= 0) {
      out.push_back(static_cast<char>(high * 16 + low));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// Decodes a name: browsers remove "." and ".." from an address, so the page sends such a name after
// a "=".
std::string NameOf(std::string part) {
  const size_t dots = part.find_first_not_of('=');
  if (dots == 0 || dots == std::string::npos) return part;
  const bool only_dots = part.compare(dots, 3, "..") == 0 || part.compare(dots, 2, ".") == 0;
  return only_dots ? part.substr(1) : part;
}

// Splits a path at slashes, then decodes each part: a name may contain a slash.
std::vector<std::string> PartsOf(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    parts.push_back(NameOf(Decoded(path.substr(0, end))));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

WebAnswer AbsentPage() {
  WebAnswer answer;
  answer.status = 503;
  answer.type = "text/plain; charset=utf-8";
  answer.body =
      absl::StrCat("this plumbd was built without the page: ", std::string(PageAbsentWhy()),
                   "\nIts JSON is under /api/v1, its metrics under /metrics; `plumb runs` "
                   "and `plumb watch` show the same in a terminal.\n");
  return answer;
}

// Returns the tag of what is sent: the compressed form has another tag.
std::string TagOf(const PageAsset& asset, bool gzip) {
  if (!gzip) return std::string(asset.tag);
  return absl::StrCat(std::string(asset.tag.substr(0, asset.tag.size() - 1)), "-gzip\"");
}

// Returns true if If-None-Match contains the tag (RFC 9110, 13.1.2): a list, weak or not, or "*"
// for any.
bool Knows(std::string_view known, std::string_view tag) {
  constexpr std::string_view kBetween = " \t,";
  while (true) {
    known.remove_prefix(std::min(known.find_first_not_of(kBetween), known.size()));
    if (known.empty()) return false;
    std::string_view one = known.substr(0, known.find_first_of(kBetween));
    known.remove_prefix(one.size());
    if (one.substr(0, 2) == "W/") one.remove_prefix(2);
    if (one == "*" || one == tag) return true;
  }
}

WebAnswer Asset(const WebRequest& request) {
  if (PageAssets().empty() && request.path == "/") return AbsentPage();
  for (const PageAsset& asset : PageAssets()) {
    if (asset.path != request.path) continue;
    const std::string tag = TagOf(asset, request.takes_gzip);
    WebAnswer answer;
    answer.type = asset.type;
    answer.headers = {{"Content-Security-Policy", kContentPolicy},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Cache-Control", "no-cache"},
                      {"Vary", "Accept-Encoding"},
                      {"ETag", tag}};
    answer.status = Knows(request.known_tag, tag) ? 304 : 200;
    answer.gzip = request.takes_gzip;
    if (answer.status == 200) answer.body = answer.gzip ? asset.gzip : asset.bytes;
    return answer;
  }
  return Failed(absl::NotFoundError("this server has no such address"));
}

// Returns the change that a request carries in its header, which other sites' pages cannot send.
absl::StatusOr<std::string> UpdateIn(const WebRequest& request) {
  if (request.update.empty() || request.update.size() > kMostUpdateBytes) {
    return absl::InvalidArgumentError(
        "expected the update in the header Plumbline-Update, as JSON in percent encoding, or as "
        "\"b64.\" and base64url");
  }
  // With percent encoding, non-Latin text would take three times its size, more than a header may
  // have.
  constexpr std::string_view kBase64 = "b64.";
  std::string update = Decoded(request.update);
  if (update.compare(0, kBase64.size(), kBase64) == 0 &&
      !absl::WebSafeBase64Unescape(update.substr(kBase64.size()), &update)) {
    return absl::InvalidArgumentError("Plumbline-Update: expected base64url after b64.");
  }
  return update;
}

}  // namespace

std::string ParamOf(const WebViews::Params& params, std::string_view name) {
  for (const auto& [key, value] : params) {
    if (key == name) return value;
  }
  return "";
}

int64_t NumberOf(const WebViews::Params& params, std::string_view name, int64_t otherwise) {
  int64_t number = 0;
  return absl::SimpleAtoi(ParamOf(params, name), &number) ? number : otherwise;
}

Json WebViews::Server(const Lease& lease) const {
  const v1::StoreInfo store = sources_.query.store->Info();
  Json out = {{"version", sources_.query.version},
              {"now", NsText(static_cast<int64_t>(UnixNs()))},
              {"grpc", sources_.grpc_address},
              {"keeps", sources_.keeps},
              {"access", lease.Names()},
              {"guarded", sources_.query.gate != nullptr && sources_.query.gate->guarded()},
              {"may_change", lease.Somewhere(Scope::kAdmin)},
              {"replay", sources_.query.judge->catching_up()},
              {"store_problem", store.problem()}};
  // The growth of this value would reveal the activity of other callers.
  if (lease.Everywhere(Scope::kRead)) out["store_bytes"] = store.bytes();
  return out;
}

std::shared_ptr<void> Listeners::Enter(const std::string& entry) {
  const MutexLock lock(counts_->mutex);
  size_t& count = counts_->of[entry];
  if (count >= kMost) return nullptr;
  ++count;
  return {counts_.get(), [counts = counts_, entry](void*) {
            const MutexLock leave(counts->mutex);
            if (--counts->of[entry] == 0) counts->of.erase(entry);
          }};
}

std::vector<std::string> WebService::Files() {
  std::vector<std::string> files = {"/"};
  for (const PageAsset& asset : PageAssets()) files.emplace_back(asset.path);
  return files;
}

WebAnswer WebService::Answer(const WebRequest& request) {
  if (request.path.compare(0, kApi.size(), kApi) != 0) return Asset(request);
  WebAnswer answer = Api(request);
  answer.headers.emplace_back("Content-Security-Policy", "default-src 'none'");
  answer.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  return answer;
}

WebAnswer WebService::Api(const WebRequest& request) {
  Gate* const gate = views_.sources().query.gate;
  // Without access control, only the name by which the server was called distinguishes our page
  // from others'.
  if (gate == nullptr || !gate->guarded()) {
    if (auto s = CheckHost(request.host); !s.ok()) return Failed(s);
  }
  const bool changes = request.method != "GET" && request.method != "HEAD";
  if (changes) {
    if (auto s = CheckSameOrigin(request); !s.ok()) return Failed(s);
  }
  absl::StatusOr<std::shared_ptr<Lease>> lease = Lease::ForEverything();
  if (gate != nullptr)
    lease = gate->EnterHttp(request.caller.authorization, request.caller.session);
  if (!lease.ok()) {
    WebAnswer answer = Failed(lease.status());
    answer.headers.emplace_back("WWW-Authenticate", "Bearer");
    return answer;
  }
  const std::vector<std::string> parts =
      PartsOf(std::string_view(request.path).substr(kApi.size()));
  const std::string& first = parts.empty() ? "" : parts[0];
  if (first == "incidents" && parts.size() > 1) return OfIncident(**lease, request, parts);
  if (changes && first == "runs" && parts.size() == 3 && parts[2] == "labels") {
    const auto update = UpdateIn(request);
    if (!update.ok()) return Failed(update.status());
    return OfResult(views_.EditRun(**lease, parts[1], *update));
  }
  if (changes) return Failed(absl::NotFoundError("this server has no such address"));
  if (first == "runs" && parts.size() > 1) return OfRun(**lease, request, parts);
  if (first == "rules" && parts.size() == 3) {
    return OfResult(views_.Rule(**lease, absl::StrCat(parts[1], "/", parts[2])));
  }
  if (parts.size() != 1) return Failed(absl::NotFoundError("this server has no such address"));
  if (first == "server") return OfJson(views_.Server(**lease));
  if (first == "runs") return OfJson(views_.Runs(**lease));
  if (first == "incidents") return OfJson(views_.Incidents(**lease, request.params));
  if (first == "rules") return OfJson(views_.Rules(**lease));
  if (first == "events") {
    // Without access control all callers are one, and only the front's limit applies.
    std::shared_ptr<void> place;
    if (gate != nullptr && gate->guarded()) {
      place = listeners_.Enter((*lease)->Names());
      if (place == nullptr) {
        return Failed(absl::UnavailableError(
            absl::StrCat(Listeners::kMost, " pages are already connected with the access entry ",
                         (*lease)->Names())));
      }
    }
    WebAnswer answer;
    answer.events =
        MakeWebEvents(&views_.sources(), &runs_, &event_ids_, *lease, request.last_event, place);
    return answer;
  }
  return Failed(absl::NotFoundError("this server has no such address"));
}

WebAnswer WebService::OfRun(const Lease& lease, const WebRequest& request,
                            const std::vector<std::string>& parts) const {
  const std::string& run = parts[1];
  if (parts.size() == 2) return OfResult(views_.Run(lease, run));
  if (parts.size() == 3) {
    const std::string& what = parts[2];
    if (what == "coverage") return OfResult(views_.Coverage(lease, run));
    if (what == "series") return OfResult(views_.Series(lease, run, request.params));
    if (what == "points") return OfResult(views_.Points(lease, run, request.params));
    if (what == "ranks") return OfResult(views_.Ranks(lease, run, request.params));
    if (what == "spark") return OfResult(views_.Spark(lease, run));
    if (what == "cells") {
      auto cells = views_.Cells(lease, run, request.params);
      if (!cells.ok()) return Failed(cells.status());
      WebAnswer answer;
      answer.type = "application/octet-stream";
      answer.body = *std::move(cells);
      return answer;
    }
  }
  return Failed(absl::NotFoundError("this server has no such address"));
}

WebAnswer WebService::OfIncident(const Lease& lease, const WebRequest& request,
                                 const std::vector<std::string>& parts) const {
  const std::string& name = parts[1];
  if (request.method != "POST") {
    if (parts.size() == 2) return OfResult(views_.Incident(lease, name));
    if (parts.size() == 3 && parts[2] == "capsule") return OfCapsule(views_.Capsule(lease, name));
    return Failed(absl::NotFoundError("this server has no such address"));
  }
  const auto update = UpdateIn(request);
  if (!update.ok()) return Failed(update.status());
  return OfResult(views_.SetState(lease, name, *update));
}

}  // namespace plumbline::server
