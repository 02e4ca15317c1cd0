"""Where jobs run. An executor takes jobs as they come, runs them somewhere, and hands each result on at once."""
