// A user's program: prints the levels of durability, from the installed headers and library.
#include <perdure/types.h>

#include <iostream>

int main() {
  for (const auto level : {perdure::Level::Received, perdure::Level::Visible,
                           perdure::Level::Durable, perdure::Level::Committed}) {
    std::cout << perdure::to_string(level) << '\n';
  }
}
