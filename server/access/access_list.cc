#include "server/access/access_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

uint8_t ScopesOf(const std::vector<std::string>& names) {
  uint8_t scopes = 0;
  for (const Scope scope : {Scope::kRead, Scope::kWrite, Scope::kAdmin}) {
    if (std::find(names.begin(), names.end(), ScopeName(scope)) != names.end()) {
      scopes |= static_cast<uint8_t>(scope);
    }
  }
  return scopes;
}

}  // namespace

absl::Status AccessList::Read(Entry* entry) {
  // before the read, so that a change during the read is detected next time
  entry->stamp = StampOf(entry->token_file);
  auto tokens = ReadTokenFile(entry->token_file);
  entry->tokens.clear();
  entry->problem.clear();
  if (tokens.ok()) {
    entry->tokens = *std::move(tokens);
    return absl::OkStatus();
  }
  entry->problem = std::string(tokens.status().message());
  return tokens.status();
}

absl::StatusOr<std::unique_ptr<AccessList>> AccessList::Open(
    const std::vector<AccessEntry>& entries) {
  auto list = std::make_unique<AccessList>();
  for (const AccessEntry& given : entries) {
    Entry entry;
    entry.part = {given.name, ScopesOf(given.scopes), given.runs};
    if (!given.san.empty()) entry.san = ParseSubjectGlob(given.san);
    entry.token_file = given.token_file;
    if (!entry.token_file.empty()) {
      if (auto s = Read(&entry); !s.ok()) return s;
    }
    const MutexLock lock(list->mutex_);
    list->entries_.push_back(std::move(entry));
  }
  return list;
}

// Compares with every token, each in constant time, so that the duration reveals nothing about
// them.
AccessList::Fit AccessList::TokenFits(const Entry& entry, const TokenDigest& token,
                                      int64_t now_unix_s) {
  Fit fit = Fit::kNo;
  for (const AcceptedToken& accepted : entry.tokens) {
    const bool same = SameDigest(accepted.digest, token);
    const Fit this_one = now_unix_s < accepted.expires_unix_s ? Fit::kYes : Fit::kExpired;
    if (same) fit = std::max(fit, this_one);
  }
  return fit;
}

bool AccessList::SanFits(const SubjectName& san, const Caller& caller) {
  if (!caller.certificate) return false;
  const auto& names = caller.certificate->names;
  return std::any_of(names.begin(), names.end(),
                     [&](const SubjectName& name) { return Fits(san, name); });
}

absl::StatusOr<Grant> AccessList::Identify(const Caller& caller, int64_t now_unix_s) const {
  std::vector<GrantPart> parts;
  Fit token = Fit::kNo;
  {
    const MutexLock lock(mutex_);
    for (const Entry& entry : entries_) {
      bool fits = true;
      if (!entry.token_file.empty()) {
        const Fit fit = caller.token ? TokenFits(entry, *caller.token, now_unix_s) : Fit::kNo;
        token = std::max(token, fit);
        fits = fit == Fit::kYes;
      }
      if (entry.san) fits = SanFits(*entry.san, caller) && fits;
      if (fits) parts.push_back(entry.part);
    }
  }
  if (caller.token && token == Fit::kExpired) {
    return absl::UnauthenticatedError("this token has expired: request a new one");
  }
  if (caller.token && token == Fit::kNo) {
    return absl::UnauthenticatedError(
        "this server does not know this token: it is wrong, or was revoked");
  }
  if (parts.empty()) {
    return absl::UnauthenticatedError(
        caller.token         ? "this token is accepted only with its certificate"
        : caller.certificate ? "no [[access]] entry matches the names in this certificate"
                             : "this server requires authentication: set PLUMBLINE_TOKEN_FILE "
                               "(--token-file), or present a client certificate");
  }
  return Grant(std::move(parts));
}

std::vector<AccessList::Expiry> AccessList::NextExpiries(int64_t now_unix_s) const {
  std::vector<Expiry> out;
  const MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    int64_t next = AcceptedToken::kNever;
    for (const AcceptedToken& token : entry.tokens) {
      if (token.expires_unix_s > now_unix_s) next = std::min(next, token.expires_unix_s);
    }
    if (next != AcceptedToken::kNever) out.push_back({entry.part.entry, next});
  }
  return out;
}

std::vector<std::string> AccessList::Refresh() {
  std::vector<std::string> problems;
  const MutexLock lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.token_file.empty()) continue;
    const bool same = entry.stamp == StampOf(entry.token_file);
    if (!same || !entry.problem.empty()) (void)Read(&entry);
    if (!entry.problem.empty()) problems.push_back(entry.problem);
  }
  return problems;
}

}  // namespace plumbline::server
