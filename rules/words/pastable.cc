// Decides which code of a fix can be pasted, and completes names that cannot.
#include "rules/words/pastable.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "rules/words/fix_commands.h"

namespace plumbline::rules {
namespace {

struct Line {
  std::string_view name, line;  // "" if it must not be pasted
};

// Names in fixes that lack their value or their arguments.
constexpr Line kLines[] = {
    {"py-spy dump", "py-spy dump --pid PID"},
    {"plumb audit --set causality/moe-intervention.replay=on",
     "plumb audit --set causality/moe-intervention.replay=on PATH"},
    {"plumbline.check_router", "plumbline.check_router(ROUTE, LOGITS)"},
    {"flush_cache", "curl -X POST http://HOST:PORT/flush_cache"},
    {"fp8_autocast", "with transformer_engine.pytorch.fp8_autocast(enabled=True):"},
    {"fp32_gate", "fp32_gate=True"},
    {"torch._scaled_mm use_fast_accum=False", "use_fast_accum=False"},
    {"position_ids.float() outside autocast", "position_ids.float()"},
    {"prescale_gradients false", "\"prescale_gradients\": false"},
    {"prescale_gradients with fp16", "\"prescale_gradients\": true"},
    {"router_aux_loss_coef", "router_aux_loss_coef=COEFFICIENT"},
    {"optimizer.load_state_dict", "optimizer.load_state_dict(STATE_DICT)"},
    {"scheduler.load_state_dict", "scheduler.load_state_dict(STATE_DICT)"},
    {"torch.distributed.checkpoint.async_save",
     "torch.distributed.checkpoint.async_save(STATE_DICT, checkpoint_id=PATH)"},
    {"--check-weight-hash-across-dp-replicas-interval",
     "--check-weight-hash-across-dp-replicas-interval STEPS"},
    {"--hysteresis", "--hysteresis STEPS"},
    {"--initial-loss-scale", "--initial-loss-scale SCALE"},
    {"--lr-decay-iters", "--lr-decay-iters STEPS"},
    {"--min-loss-scale", "--min-loss-scale SCALE"},
    {"--moe-aux-loss-coeff", "--moe-aux-loss-coeff COEFFICIENT"},
    {"--moe-router-bias-update-rate", "--moe-router-bias-update-rate RATE"},
    {"--moe-z-loss-coeff", "--moe-z-loss-coeff COEFFICIENT"},
    {"--rules", ""},
};

constexpr Line kPlaceholders[] = {
    {"COEFFICIENT", "a number that is larger than your current value"},
    {"HOST", "the host of the engine"},
    {"LOGITS", "a batch of the router's logits, tokens by experts"},
    {"PATH", "your file or folder"},
    {"PID", "the process of a named rank, on its host"},
    {"PORT", "the host of the engine"},
    {"RATE", "a number that is larger than your current value"},
    {"ROUTE", "your router: a callable from logits to indices"},
    {"SCALE", "a power of two"},
    {"STATE_DICT", "the saved state"},
    {"STEPS", "a number of steps"},
};

bool IsWordByte(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Returns true if there is a blank outside of parentheses, brackets, braces and quotes, where a
// blank belongs to an argument.
bool HasOuterBlank(std::string_view text) {
  int depth = 0;
  char quote = '\0';
  for (const char c : text) {
    if (quote != '\0') {
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == ' ' && depth == 0) {
      return true;
    } else {
      depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    }
  }
  return false;
}

// Returns true for one option with at most one value: "--flag", "--option VALUE", "--option=value".
bool IsOption(std::string_view text) {
  if (text.substr(0, 2) != "--" || text.size() < 4) return false;
  return std::count(text.begin(), text.end(), ' ') <= 1;
}

// Returns true for a setting with a value: "name=value", "pool.size = 4".
bool IsSetting(std::string_view text) {
  const size_t at = text.find('=');
  if (at == std::string_view::npos || at == 0 || at + 1 == text.size()) return false;
  std::string_view name = text.substr(0, at);
  if (name.back() == ' ') name.remove_suffix(1);
  return std::all_of(name.begin(), name.end(), [](char c) { return IsWordByte(c) || c == '.'; }) &&
         (text[at - 1] == ' ' || !HasOuterBlank(text.substr(at + 1)));
}

// Returns true for a call, "model.tie_weights()", or a `with` that begins a block.
bool IsCall(std::string_view text) {
  if (text.substr(0, 5) == "with ") return text.back() == ':';
  const bool named = std::isalpha(static_cast<unsigned char>(text[0])) != 0;
  return named && text.back() == ')' && text.find('(') != std::string_view::npos &&
         text.find("...") == std::string_view::npos && !HasOuterBlank(text);
}

// Returns true for a line of a JSON configuration: "key": value.
bool IsEntry(std::string_view text) {
  const size_t at = text.find("\": ");
  return text[0] == '"' && at != std::string_view::npos && at + 3 < text.size();
}

}  // namespace

bool IsProgram(std::string_view word) {
  constexpr std::string_view kPrograms[] = {"ssh",   "py-spy", "nvidia-smi", "dcgmi",
                                            "dmesg", "plumb",  "curl",       "python"};
  return std::find(std::begin(kPrograms), std::end(kPrograms), word) != std::end(kPrograms);
}

std::string LineOf(std::string_view name) {
  const auto* const known = std::find_if(std::begin(kLines), std::end(kLines),
                                         [name](const Line& one) { return one.name == name; });
  return std::string(known == std::end(kLines) ? name : known->line);
}

bool IsPastable(const std::string& text) {
  if (text.size() < 3 || text.find('\n') != std::string::npos || LineOf(text) != text) return false;
  if (IsProgram(std::string_view(text).substr(0, text.find(' ')))) return true;
  return IsOption(text) || IsSetting(text) || IsCall(text) || IsEntry(text);
}

std::string PlaceholdersIn(const std::string& command) {
  std::string out;
  for (const Line& one : kPlaceholders) {
    for (size_t at = 0; (at = command.find(one.name, at)) != std::string::npos; ++at) {
      const size_t end = at + one.name.size();
      const bool whole = (at == 0 || !IsWordByte(command[at - 1])) &&
                         (end == command.size() || !IsWordByte(command[end]));
      if (!whole) continue;
      out += (out.empty() ? "" : "; ") + std::string(one.name) + ": " + std::string(one.line);
      break;
    }
  }
  return out;
}

}  // namespace plumbline::rules
