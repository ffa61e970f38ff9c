// Logs whose words are German, French, Spanish, Russian, Chinese or Japanese: "Schritt 10: Verlust
// 2.5", "第10步，损失：2.5". Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns true if two lines of the text or more have both a step or an epoch and a loss in such
// words.
bool HasForeignWords(std::string_view text);

// Returns the line with English words in place of these. Uses *scratch.
std::string_view WithEnglishWords(std::string_view line, std::string* scratch);

}  // namespace plumbline::audit
