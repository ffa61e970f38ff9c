// Translates logs in German, French, Spanish, Russian, Chinese or Japanese: "Schritt 10: Verlust
// 2.5", "第10步，损失：2.5". Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Returns true if at least two lines of the text have a loss, and also a step or an epoch, in words
// of these languages.
bool HasForeignWords(std::string_view text);

// Returns the line with these words replaced by English ones. Uses *scratch.
std::string_view WithEnglishWords(std::string_view line, std::string* scratch);

}  // namespace plumbline::audit
