// plumb query history and plumb query incident.
#include <pwd.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "audit/live/caught_up.h"
#include "audit/live/client.h"
#include "audit/live/live.h"
#include "audit/live/output.h"
#include "audit/live/watch_printer.h"
#include "audit/render/finding_text.h"

namespace plumbline::audit {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

const char* ChangeName(v1::IncidentRevision::Change change) {
  switch (change) {
    case v1::IncidentRevision::CHANGE_OPENED:
      return "opened";
    case v1::IncidentRevision::CHANGE_STRONGER:
      return "stronger";
    case v1::IncidentRevision::CHANGE_ACKNOWLEDGED:
      return "acknowledged";
    case v1::IncidentRevision::CHANGE_SILENCED:
      return "silenced";
    case v1::IncidentRevision::CHANGE_REOPENED:
      return "reopened";
    case v1::IncidentRevision::CHANGE_RESOLVED:
      return "resolved";
    case v1::IncidentRevision::CHANGE_RETURNED:
      return "returned";
    case v1::IncidentRevision::CHANGE_MERGED:
      return "merged";
    case v1::IncidentRevision::CHANGE_STOPPED:
      return "stop";
    default:
      return "unspecified";
  }
}

std::string RevisionText(const v1::IncidentRevision& r) {
  std::string text =
      TimeText(r.unix_ns()) + "  " + Padded(ChangeName(r.change()), 12) +
      Padded(std::string(LevelName(r.level())), 7) + Padded(absl::StrCat("step ", r.step()), 12) +
      absl::StrCat("seen ", r.count() == 1 ? "once" : absl::StrCat(r.count(), " times"));
  if (r.site_count() > 1) absl::StrAppend(&text, " at ", r.site_count(), " sites");
  if (!r.who().empty())
    absl::StrAppend(&text, "  ", Printable(r.who()), ": ", Printable(r.reason()));
  return text + "\n";
}

std::string DeliveryText(const v1::AlertDelivery& a) {
  const int64_t at = a.done_unix_ns() != 0 ? a.done_unix_ns() : a.decided_unix_ns();
  std::string text = TimeText(at) + "  sent " + Padded(Printable(a.route()), 12) +
                     Padded(Printable(a.event()), 11) + Printable(a.state());
  if (a.tries() > 1) absl::StrAppend(&text, " after ", a.tries(), " tries");
  if (!a.problem().empty()) absl::StrAppend(&text, ": ", Printable(a.problem()));
  return text + "\n";
}

std::string DeliveryJson(const v1::AlertDelivery& a) {
  return absl::StrCat(
      "{\"alert\":", JsonString(a.route()), ",\"event\":", JsonString(a.event()),
      ",\"revision\":", a.revision(), ",\"state\":", JsonString(a.state()),
      ",\"tries\":", a.tries(), ",\"decided\":\"", Rfc3339(a.decided_unix_ns()),
      "\",\"done\":", a.done_unix_ns() == 0 ? "null" : "\"" + Rfc3339(a.done_unix_ns()) + "\"",
      ",\"problem\":", JsonString(a.problem()), "}\n");
}

std::string RevisionJson(const v1::IncidentRevision& r) {
  return absl::StrCat("{\"revision\":", r.revision(), ",\"change\":\"", ChangeName(r.change()),
                      "\",\"state\":\"", StateName(r.state()), "\",\"level\":\"",
                      std::string(LevelName(r.level())), "\",\"count\":", r.count(),
                      ",\"sites\":", r.site_count(), ",\"step\":", r.step(), ",\"time\":\"",
                      Rfc3339(r.unix_ns()), "\",\"who\":", JsonString(r.who()),
                      ",\"reason\":", JsonString(r.reason()), "}\n");
}

std::string Headline(const v1::Incident& incident, const v1::IncidentStatus& status) {
  const v1::Finding& finding = incident.finding();
  const std::string sites =
      status.site_count() > 1 ? absl::StrCat(" and ", status.site_count() - 1, " more sites") : "";
  return absl::StrCat("incident ", incident.id(), " ", Printable(FingerprintOf(incident, status)),
                      " is ", status.merged_into().empty() ? StateName(incident.state()) : "merged",
                      StatusText(incident, status), "\n", std::string(LevelName(finding.level())),
                      "  ", Printable(finding.rule()), "  ", SiteText(finding.site()), sites, ": ",
                      Printable(finding.title()), "\n");
}

// Returns the length of a unit in nanoseconds; 0 if it is not a unit.
int64_t LengthOf(char unit) {
  switch (unit) {
    case 's':
      return kSecond;
    case 'm':
      return 60 * kSecond;
    case 'h':
      return 3600 * kSecond;
    case 'd':
      return 86400 * kSecond;
    default:
      return 0;
  }
}

bool ParseLocalTime(const std::string& text, int64_t* unix_ns) {
  for (const char* format : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    std::tm parts{};
    parts.tm_isdst = -1;
    const char* end = strptime(text.c_str(), format, &parts);
    if (end == nullptr || *end != '\0') continue;
    const std::time_t seconds = std::mktime(&parts);
    *unix_ns = int64_t{seconds} * kSecond;
    return seconds != -1;
  }
  return false;
}

}  // namespace

bool ParseUntil(const std::string& text, int64_t now_unix_ns, v1::IncidentUpdate* update) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && number >= 0) {
    if (rest == end) {
      update->set_until_step(number);
      return true;
    }
    const int64_t length = rest + 1 == end ? LengthOf(*rest) : 0;
    if (length > 0 && number < INT64_MAX / 4 / length) {
      update->set_until_unix_ns(now_unix_ns + number * length);
      return true;
    }
  }
  int64_t unix_ns = 0;
  if (!ParseLocalTime(text, &unix_ns)) return false;
  update->set_until_unix_ns(unix_ns);
  return true;
}

int QueryHistory(const IncidentOptions& options) {
  Client client(options.server);
  const auto caught_up = AwaitCaughtUp(client, options.server, options.timeout_seconds);
  if (!caught_up.ok()) return LiveFailed(caught_up.status());
  const auto response = client.History(options.fingerprint, options.timeout_seconds);
  if (!response.ok()) return LiveFailed(response.status());
  std::string out;
  const bool json = options.format == "json";
  if (!json) out = Headline(response->incident(), response->status());
  for (const v1::IncidentRevision& r : response->revisions())
    out += json ? RevisionJson(r) : RevisionText(r);
  if (!json && response->merged() > 0) {
    absl::StrAppend(&out, Plural(response->merged(), "more verdict"), " merged\n");
  }
  for (const v1::AlertDelivery& a : response->alerts())
    out += json ? DeliveryJson(a) : DeliveryText(a);
  return LiveAnswer(out, *caught_up);
}

std::string UserName() {
  const passwd* user = getpwuid(geteuid());
  return user != nullptr ? user->pw_name : absl::StrCat("uid ", geteuid());
}

int UpdateIncident(const IncidentOptions& options) {
  v1::IncidentUpdate update;
  update.set_fingerprint(options.fingerprint);
  const int actions = (options.acknowledge ? 1 : 0) + (options.reopen ? 1 : 0) +
                      (options.silence_until.empty() ? 0 : 1);
  if (actions == 0) return QueryHistory(options);
  if (actions > 1) {
    return LiveFailed(absl::InvalidArgumentError(
        "expected one of --acknowledge, --silence-until and --reopen, found several"));
  }
  if (options.reason.empty()) {
    return LiveFailed(absl::InvalidArgumentError(
        "expected --reason TEXT: later readers of the incident need the reason"));
  }
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  update.set_action(options.acknowledge ? v1::IncidentUpdate::ACTION_ACKNOWLEDGE
                    : options.reopen    ? v1::IncidentUpdate::ACTION_REOPEN
                                        : v1::IncidentUpdate::ACTION_SILENCE);
  if (!options.silence_until.empty() && !ParseUntil(options.silence_until, now, &update)) {
    return LiveFailed(absl::InvalidArgumentError(
        absl::StrCat("--silence-until: expected a step (1200), a time from now (30m, 12h, 7d) or a "
                     "date (2026-11-30, 2026-11-30T12:00), found ",
                     options.silence_until)));
  }
  update.set_who(options.who.empty() ? UserName() : options.who);
  update.set_reason(options.reason);
  Client client(options.server);
  const auto caught_up = AwaitCaughtUp(client, options.server, options.timeout_seconds);
  if (!caught_up.ok()) return LiveFailed(caught_up.status());
  const auto response = client.Update(update, options.timeout_seconds);
  if (!response.ok()) return LiveFailed(response.status());
  return LivePrint(options.format == "json"
                       ? IncidentJson(response->incident(), response->status()) + "\n"
                       : Headline(response->incident(), response->status()));
}

}  // namespace plumbline::audit
