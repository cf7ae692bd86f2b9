"""The approval of a stage: which stages wait for one, and which commits and reviews give it."""
