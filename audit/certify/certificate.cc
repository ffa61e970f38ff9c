#include "audit/certify/certificate.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "audit/render/text_util.h"
#include "base/files/whole_file.h"
#include "base/version/build_version.h"

namespace plumbline::audit {
namespace {

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

nlohmann::json FilesJson(const std::vector<CertifiedFile>& files) {
  nlohmann::json out = nlohmann::json::array();
  for (const CertifiedFile& file : files)
    out.push_back({{"file", Printable(file.place)},
                   {"format", file.format},
                   {"bytes", file.hash.bytes},
                   {"sha256", file.hash.sha256}});
  return out;
}

nlohmann::json EnvironmentJson(const Environment& environment) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [name, words] : environment) {
    nlohmann::json list = nlohmann::json::array();
    for (const std::string& word : words) list.push_back(Printable(word));
    out[Printable(name)] = std::move(list);
  }
  return out;
}

// Returns the names of which both sides give a value, and other values.
nlohmann::json DifferingNames(const Environment& a, const Environment& b) {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [name, words] : a) {
    const auto other = b.find(name);
    if (other != b.end() && other->second != words) out.push_back(Printable(name));
  }
  return out;
}

uint64_t ComparedOf(const Tally& tally, std::string_view prefix) {
  uint64_t sum = 0;
  for (const auto& [name, kind] : tally.kinds()) {
    if (name.starts_with(prefix)) sum += kind.compared;
  }
  return sum;
}

// Returns the bytes that are signed: compact JSON with sorted keys, without `signature`.
std::string SignedBytes(nlohmann::json certificate) {
  certificate.erase("signature");
  return certificate.dump(-1, ' ', false, kReplace);
}

// A kind that a certificate lacks counts 0.
uint64_t CountIn(const nlohmann::json& kind, const char* name) {
  return kind.is_null() ? 0 : kind.at(name).get<uint64_t>();
}

nlohmann::json KindIn(const nlohmann::json& certificate, const std::string& kind) {
  const nlohmann::json& kinds = certificate.at("compared");
  return kinds.contains(kind) ? kinds.at(kind) : nlohmann::json();
}

// Returns how many values of a kind could not be compared and count against equality.
uint64_t OpenGaps(const nlohmann::json& certificate, const std::string& kind) {
  uint64_t sum = 0;
  for (const nlohmann::json& gap : certificate.at("not_compared")) {
    if (gap.at("kind") == kind && gap.at("open").get<bool>())
      sum += gap.at("count").get<uint64_t>();
  }
  return sum;
}

// Returns true if part / whole > other / all, without rounding. 0 of 0 is 0.
bool LargerShare(uint64_t part, uint64_t whole, uint64_t other, uint64_t all) {
  if (part == 0) return false;
  if (all == 0) return true;
  return absl::uint128(part) * all > absl::uint128(other) * whole;
}

// Adds what is worse than in the baseline: a kind that is gone, larger shares, larger distances.
void CompareKind(const std::string& name, const nlohmann::json& old, const nlohmann::json& now,
                 std::vector<std::string>* worse) {
  const uint64_t before = CountIn(old, "compared"), count = CountIn(now, "compared");
  if (before > 0 && count == 0) {
    worse->push_back(name + ": not compared any more");
    return;
  }
  for (const char* what : {"differ", "zero_signs", "non_finite", "other"}) {
    if (LargerShare(CountIn(now, what), count, CountIn(old, what), before))
      worse->push_back(absl::StrCat(name, ": ", what, " ", CountIn(now, what), " of ", count,
                                    ", in the baseline ", CountIn(old, what), " of ", before));
  }
  if (now.is_null()) return;
  for (const auto& [dtype, distances] : now.at("ulps").items()) {
    const bool known = !old.is_null() && old.at("ulps").contains(dtype);
    const auto most = known ? old.at("ulps").at(dtype).at("largest").get<uint64_t>() : uint64_t{0};
    const auto found = distances.at("largest").get<uint64_t>();
    if (found > most)
      worse->push_back(absl::StrCat(name, ": a distance of ", found, " ulps of ", dtype,
                                    ", in the baseline at most ", most));
  }
}

std::string ValueText(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  return absl::StrCat(value.at("value").get<std::string>(), " (",
                      value.at("dtype").get<std::string>(), " ",
                      value.at("bits").get<std::string>(), ")");
}

std::string FirstText(const nlohmann::json& first) {
  std::vector<std::string> where;
  for (const auto& [name, value] : first.at("where").items())
    where.push_back(name + " " + (value.is_string() ? value.get<std::string>() : value.dump()));
  std::string out = absl::StrCat("first difference  ", first.at("kind").get<std::string>(), ", ",
                                 absl::StrJoin(where, ", "), ": ", ValueText(first.at("a")),
                                 " in A, ", ValueText(first.at("b")), " in B");
  if (!first.at("distance").is_null())
    absl::StrAppend(&out, ", ", first.at("distance").at("ulps").dump(), " ulps");
  return out + "\n";
}

}  // namespace

nlohmann::json CertificateJson(const Certificate& c, const std::vector<std::string>& ignored) {
  return {{"schema", kCertificateSchema},
          {"plumb", BuildVersion()},
          {"mode", c.mode},
          {"verdict", c.Verdict()},
          {"counts",
           {{"steps", c.steps},
            {"tokens", ComparedOf(c.tally, "tokens")},
            {"logprobs", ComparedOf(c.tally, "logprobs:")},
            {"vocabulary_rows", c.vocabulary_rows},
            {"routing_choices", ComparedOf(c.tally, "routing")},
            {"series_values", ComparedOf(c.tally, "series")},
            {"digests", ComparedOf(c.tally, "digests")},
            {"weights", ComparedOf(c.tally, "weights")},
            {"values", c.tally.compared()},
            {"differ", c.tally.differ()}}},
          {"compared", c.tally.KindsJson()},
          {"not_compared", c.tally.GapsJson()},
          {"first_difference", c.tally.first()},
          {"environment",
           {{"a", EnvironmentJson(c.a.environment)},
            {"b", EnvironmentJson(c.b.environment)},
            {"differs", DifferingNames(c.a.environment, c.b.environment)}}},
          {"inputs", {{"a", FilesJson(c.a.files)}, {"b", FilesJson(c.b.files)}}},
          {"ignored", ignored},
          {"problems", c.problems},
          {"signature", nullptr}};
}

absl::Status SignCertificate(const std::string& key_file, nlohmann::json* certificate) {
  const auto signature = SignEd25519(key_file, SignedBytes(*certificate));
  if (!signature.ok()) return signature.status();
  (*certificate)["signature"] = {{"algorithm", "ed25519"},
                                 {"public_key_sha256", signature->public_key},
                                 {"value", signature->value}};
  return absl::OkStatus();
}

// The bytes of the file. A file with other bytes of the same meaning is refused when it is read.
std::string CertificateText(const nlohmann::json& certificate) {
  return certificate.dump(1, ' ', false, kReplace) + "\n";
}

absl::StatusOr<nlohmann::json> ReadCertificate(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!text.ok()) return text.status();
  nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("schema") ||
      json.at("schema") != kCertificateSchema || CertificateText(json) != *text)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected the bytes of a ", kCertificateSchema, " that plumb wrote"));
  return json;
}

absl::StatusOr<std::string> SignatureFault(const nlohmann::json& certificate,
                                           const std::string& public_key_file) {
  const nlohmann::json signature = certificate.value("signature", nlohmann::json());
  if (signature.is_null()) return "it is not signed";
  const auto text = [&](const char* name) {
    const nlohmann::json value =
        signature.is_object() ? signature.value(name, nlohmann::json()) : nlohmann::json();
    return value.is_string() ? value.get<std::string>() : "";
  };
  if (text("algorithm") != "ed25519" || signature.size() != 3)
    return "its signature is not of Ed25519";
  const auto good = VerifyEd25519(public_key_file, SignedBytes(certificate),
                                  {text("value"), text("public_key_sha256")});
  if (!good.ok()) return good.status();
  return *good ? "" : "its signature is not by " + public_key_file + " over this content";
}

absl::StatusOr<std::string> InputFault(const nlohmann::json& certificate, const std::string& side,
                                       const std::string& path) {
  const Inputs inputs = FindInputs({path}, nullptr);
  const auto files = HashSide(path, inputs.reports, StampsOf(inputs.reports));
  if (!files.ok()) return files.status();
  const nlohmann::json now = FilesJson(*files), then = certificate.at("inputs").at(side);
  const auto known = [](const nlohmann::json& list, const nlohmann::json& file) {
    return std::any_of(list.begin(), list.end(), [&](const auto& other) {
      return other.at("file") == file.at("file") && other.at("sha256") == file.at("sha256");
    });
  };
  // The name of a single file may change; its content may not.
  if (now.size() == 1 && then.size() == 1 && now[0].at("sha256") == then[0].at("sha256")) return "";
  for (const nlohmann::json& file : then) {
    if (!known(now, file))
      return path + ": " + file.at("file").get<std::string>() +
             " is missing or has another SHA-256";
  }
  for (const nlohmann::json& file : now) {
    if (!known(then, file))
      return path + ": " + file.at("file").get<std::string>() + " is not in the certificate";
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> WorseThan(const nlohmann::json& baseline,
                                                   const nlohmann::json& now) {
  if (baseline.at("mode") != now.at("mode"))
    return absl::InvalidArgumentError(absl::StrCat("expected a baseline of mode ",
                                                   now.at("mode").get<std::string>(), ", found ",
                                                   baseline.at("mode").get<std::string>()));
  std::set<std::string> kinds;
  for (const nlohmann::json* certificate : {&baseline, &now}) {
    for (const auto& [name, kind] : certificate->at("compared").items()) kinds.insert(name);
    for (const nlohmann::json& gap : certificate->at("not_compared"))
      kinds.insert(gap.at("kind").get<std::string>());
  }
  std::vector<std::string> worse;
  for (const std::string& name : kinds) {
    const nlohmann::json old_kind = KindIn(baseline, name), new_kind = KindIn(now, name);
    CompareKind(name, old_kind, new_kind, &worse);
    const uint64_t open_then = OpenGaps(baseline, name), open_now = OpenGaps(now, name);
    const uint64_t all_then = open_then + CountIn(old_kind, "compared");
    const uint64_t all_now = open_now + CountIn(new_kind, "compared");
    if (LargerShare(open_now, all_now, open_then, all_then))
      worse.push_back(absl::StrCat(name, ": not compared ", open_now, " of ", all_now,
                                   ", in the baseline ", open_then, " of ", all_then));
  }
  return worse;
}

// One line for the verdict, one for each gap, and one for what the environments state differently.
std::string CertificateSummary(const nlohmann::json& c) {
  const nlohmann::json& counts = c.at("counts");
  const auto count = [&](const char* name) { return counts.at(name).dump(); };
  std::string out =
      absl::StrCat(c.at("verdict").get<std::string>(), "  ", count("tokens"), " tokens, ",
                   count("vocabulary_rows"), " rows of the vocabulary, ", count("routing_choices"),
                   " routing choices, ", count("series_values"), " values of series, ",
                   count("digests"), " digests, ", count("weights"), " weights; ", count("differ"),
                   " of ", count("values"), " values differ\n");
  if (!c.at("first_difference").is_null()) out += FirstText(c.at("first_difference"));
  for (const nlohmann::json& name : c.at("environment").at("differs")) {
    const auto key = name.get<std::string>();
    absl::StrAppend(&out, "declared  ", key, ": ", c.at("environment").at("a").at(key).dump(),
                    " in A, ", c.at("environment").at("b").at(key).dump(), " in B\n");
  }
  for (const nlohmann::json& gap : c.at("not_compared"))
    absl::StrAppend(&out, "not compared  ", gap.at("kind").get<std::string>(), ": ",
                    gap.at("count").dump(), " (", gap.at("reason").get<std::string>(), ")",
                    gap.at("open").get<bool>() ? "" : ", not counted against equality", "\n");
  return out + (c.at("signature").is_null() ? "unsigned\n" : "signed\n");
}

}  // namespace plumbline::audit
